//! Definitions of field tables. The tables themselves are in [`super::tables`]; decoding, the JSON schema, the
//! reference and the KDL names all read them, so that they cannot disagree.

use std::time::Duration;
use windlass_types::{Bytes, GrowableQuantity};

/// A map type with its allowed fields.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldTable {
    /// What such a map is called: "job".
    pub(crate) noun: &'static str,
    /// A description in one or two sentences.
    pub(crate) description: &'static str,
    pub(crate) fields: &'static [SpecField],
    /// Obsolete fields: the name, and what to do instead.
    pub(crate) removed_fields: &'static [(&'static str, &'static str)],
    /// In KDL the map is a node with its `name` as the first argument.
    pub(crate) is_named: bool,
}

impl FieldTable {
    pub(super) const fn new(
        noun: &'static str,
        description: &'static str,
        fields: &'static [SpecField],
    ) -> Self {
        Self { noun, description, fields, removed_fields: &[], is_named: false }
    }

    pub(super) const fn removed_fields(self, gone: &'static [(&'static str, &'static str)]) -> Self {
        Self { removed_fields: gone, ..self }
    }

    pub(super) const fn named(self) -> Self {
        Self { is_named: true, ..self }
    }

    /// Returns the index of a field by its name or an alias, and the matched word.
    pub(crate) fn find_field(&self, name: &str) -> Option<(usize, &'static str)> {
        // Names are compared first, because this runs for every field of a million jobs.
        if let Some(index) = self.fields.iter().position(|field| field.name == name) {
            return Some((index, self.fields[index].name));
        }
        self.fields.iter().enumerate().find_map(|(index, field)| {
            field.aliases.iter().find(|alias| **alias == name).map(|alias| (index, *alias))
        })
    }
}

/// A field of a [`FieldTable`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpecField {
    pub(crate) name: &'static str,
    pub(crate) field_type: FieldType,
    pub(crate) required: bool,
    /// The default, in words or as a value; empty if there is none.
    pub(crate) default: &'static str,
    /// A one-line description.
    pub(crate) description: &'static str,
    /// Accepted aliases.
    pub(crate) aliases: &'static [&'static str],
    /// Names that other tools use. They are not accepted, but improve the error message.
    pub(crate) foreign_names: &'static [&'static str],
    /// The name of the KDL node for one item of a list; empty if it is the field name.
    pub(crate) kdl_node_name: &'static str,
}

impl SpecField {
    pub(super) const fn required(name: &'static str, is: FieldType, about: &'static str) -> Self {
        let field = Self::optional(name, is, about);
        Self { required: true, ..field }
    }

    pub(super) const fn optional(
        name: &'static str,
        field_type: FieldType,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            field_type,
            required: false,
            default: "",
            description,
            aliases: &[],
            foreign_names: &[],
            kdl_node_name: "",
        }
    }

    pub(super) const fn default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    pub(super) const fn aliases(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    pub(super) const fn foreign_names(self, elsewhere: &'static [&'static str]) -> Self {
        Self { foreign_names: elsewhere, ..self }
    }

    pub(super) const fn node(self, node: &'static str) -> Self {
        Self { kdl_node_name: node, ..self }
    }

    /// The name and all aliases.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The name of the KDL node for one item of this list, or for the field itself.
    pub(crate) fn kdl_node(&self) -> &'static str {
        if self.kdl_node_name.is_empty() { self.name } else { self.kdl_node_name }
    }
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldType {
    /// Any text. Unquoted numbers and booleans are texts as written.
    Text,
    /// A non-blank text.
    NonBlank,
    /// A non-blank text without control characters.
    Name,
    /// A regular expression.
    Regex,
    Integer(i64, i64),
    Number(f64, f64),
    Boolean,
    /// One of these words.
    Choice(&'static [&'static str]),
    Size,
    Duration,
    /// A duration as Slurm reads it: a bare number is minutes.
    Walltime,
    /// A size as Slurm reads it: a bare number is MiB.
    SlurmSize,
    Signal,
    /// Like `Signal`, with the syntax of `srun --signal`.
    SrunSignal,
    /// An increase.
    Growth(GrowthUnit),
    /// A text to find, or `re:` and a regular expression.
    StderrPattern,
    /// A number, or a percentage of the jobs.
    RetryBudget,
    List(&'static FieldType),
    Map(&'static FieldTable),
    /// Environment variables.
    Env,
    /// Names with a count in this range.
    Limits(i64, i64),
    /// Names and texts.
    Constants,
    /// Names and their lists of values.
    Parameters,
    /// sbatch options.
    SlurmOptions,
    /// Any value.
    Json,
    /// A map with any content.
    JsonMap,
}

/// Resources that can be increased.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GrowthUnit {
    Size,
    Duration,
    Count,
}

impl GrowthUnit {
    /// An amount to add.
    pub(crate) const fn example(self) -> &'static str {
        match self {
            Self::Size => Bytes::EXAMPLE,
            Self::Duration => Duration::EXAMPLE,
            Self::Count => u32::EXAMPLE,
        }
    }
}

impl FieldType {
    /// The type of one item, if this is a list.
    pub(crate) const fn item_type(&self) -> Option<&'static FieldType> {
        match self {
            Self::List(item) => Some(item),
            _ => None,
        }
    }

    /// The table of the map, or of each item of the list of maps.
    pub(crate) const fn inner_table(&self) -> Option<&'static FieldTable> {
        match self {
            Self::Map(map) | Self::List(Self::Map(map)) => Some(map),
            _ => None,
        }
    }

    pub(super) const fn integer_range(&self) -> (i64, i64) {
        match self {
            Self::Integer(least, most) | Self::Limits(least, most) => (*least, *most),
            _ => (i64::MIN, i64::MAX),
        }
    }

    pub(super) const fn number_range(&self) -> (f64, f64) {
        match self {
            Self::Number(least, most) => (*least, *most),
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }

    pub(crate) const fn choices(&self) -> &'static [&'static str] {
        match self {
            Self::Choice(words) => words,
            _ => &[],
        }
    }
}

/// The fields of a map as an enum, in table order.
pub(super) trait FieldId: Copy + 'static {
    const MAP: &'static FieldTable;
    const ALL: &'static [Self];
}

/// Defines the table of a map and maps its fields to the variants of an enum.
macro_rules! fields {
    (
        $map:ident = $what:literal, $about:literal $(, .$with:ident($($value:expr)?))*;
        $id:ty: $($is:expr => $field:expr,)+
    ) => {
        pub(crate) static $map: FieldTable = FieldTable::new($what, $about, &[$($field),+])$(.$with($($value)?))*;

        impl FieldId for $id {
            const MAP: &'static FieldTable = &$map;
            const ALL: &'static [Self] = &[$($is),+];
        }
    };
}
pub(super) use fields;
