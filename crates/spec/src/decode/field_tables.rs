//! What a table of fields is made of. The tables themselves are in [`super::tables`]; decoding, the JSON schema, the
//! reference and the spellings of KDL all read them, so that none can say something else than the others.

use std::time::Duration;
use windlass_types::{Bytes, GrowableQuantity};

/// A kind of map: which fields it may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldTable {
    /// What such a map is: "job".
    pub(crate) noun: &'static str,
    /// What it is for, in a sentence or two.
    pub(crate) description: &'static str,
    pub(crate) fields: &'static [SpecField],
    /// Fields that people may still write: the name, and what to do instead.
    pub(crate) removed_fields: &'static [(&'static str, &'static str)],
    /// In KDL such a map is a node whose first argument is its `name`.
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

    /// The place of a field in the table by its name, or by another word that is understood, and that word.
    pub(crate) fn find_field(&self, name: &str) -> Option<(usize, &'static str)> {
        // By name first: this is asked for every field of a million jobs.
        if let Some(index) = self.fields.iter().position(|field| field.name == name) {
            return Some((index, self.fields[index].name));
        }
        self.fields.iter().enumerate().find_map(|(index, field)| {
            field.aliases.iter().find(|alias| **alias == name).map(|alias| (index, *alias))
        })
    }
}

/// A field of a [`Map`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpecField {
    pub(crate) name: &'static str,
    pub(crate) field_type: FieldType,
    pub(crate) required: bool,
    /// What holds where nothing is written, in words or as a value; empty where there is nothing to say.
    pub(crate) default: &'static str,
    /// One line.
    pub(crate) description: &'static str,
    /// Other words that are understood.
    pub(crate) aliases: &'static [&'static str],
    /// Words that other tools have for it. They are not understood, but known when they are met.
    pub(crate) foreign_names: &'static [&'static str],
    /// The name of the KDL node that holds one item of a list; empty where it is the name itself.
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

    /// The name and everything else that is understood in its place.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// The name of the KDL node for one item of this list, or for the field itself.
    pub(crate) fn kdl_node(&self) -> &'static str {
        if self.kdl_node_name.is_empty() { self.name } else { self.kdl_node_name }
    }
}

/// What may stand in a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldType {
    /// Any text. Unquoted numbers and truth values are texts too, as they are written.
    Text,
    /// A text that is not blank.
    NonBlank,
    /// A text that is not blank and holds no control characters.
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
    /// A duration as Slurm reads it: a number alone counts minutes.
    Walltime,
    /// A size as Slurm reads it: a number alone counts MiB.
    SlurmSize,
    Signal,
    /// As `Signal`, with what `srun --signal` puts around it.
    SrunSignal,
    /// How much more is asked for.
    Growth(GrowthUnit),
    /// Words, or `re:` and a regular expression.
    StderrPattern,
    /// A number, or a share of the jobs.
    RetryBudget,
    List(&'static FieldType),
    Map(&'static FieldTable),
    /// Environment variables.
    Env,
    /// Names, and how many of each, within this range.
    Limits(i64, i64),
    /// Names and texts.
    Constants,
    /// Names and what they run through.
    Parameters,
    /// Options of sbatch.
    SlurmOptions,
    /// Anything.
    Json,
    /// A map of anything.
    JsonMap,
}

/// What can grow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GrowthUnit {
    Size,
    Duration,
    Count,
}

impl GrowthUnit {
    /// An amount on top.
    pub(crate) const fn example(self) -> &'static str {
        match self {
            Self::Size => Bytes::EXAMPLE,
            Self::Duration => Duration::EXAMPLE,
            Self::Count => u32::EXAMPLE,
        }
    }
}

impl FieldType {
    /// What one item is, if this is a list.
    pub(crate) const fn item_type(&self) -> Option<&'static FieldType> {
        match self {
            Self::List(item) => Some(item),
            _ => None,
        }
    }

    /// What is within the map, or within each item of the list of maps.
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

/// The fields of a map as an enum, in the order of the table.
pub(super) trait FieldId: Copy + 'static {
    const MAP: &'static FieldTable;
    const ALL: &'static [Self];
}

/// Makes the table of a map and ties its fields to the variants of an enum.
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
