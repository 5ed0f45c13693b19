//! How the fields of a spec look in KDL: which node is which field, and what stands in it. Read off the tables that the
//! decoder goes by, so no field is forgotten here.

use crate::decode::field_tables::{FieldTable, FieldType, SpecField};

/// Nodes that Torc's own examples use, and the field that is meant.
const LEGACY_NODES: [(&str, &str); 1] = [("depends_on_job", "depends_on")];

/// What stands in a field, as far as a format that knows no fields has to know.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldForm {
    /// A scalar that is taken as written, or `true` and `false`.
    Text,
    Number,
    /// A list of texts: several values, several nodes, or both.
    Texts,
    Numbers,
    Map(&'static FieldTable),
    /// A list of maps, a node for each.
    Entries(&'static FieldTable),
    /// Names and what they run through.
    Parameters,
    /// A map of texts.
    TextMap,
    /// Anything.
    Any,
    /// A map of anything.
    AnyMap,
}

impl FieldForm {
    pub(crate) const fn from_type(is: &FieldType) -> Self {
        match is {
            FieldType::Integer(..) | FieldType::Number(..) => Self::Number,
            FieldType::List(FieldType::Map(map)) => Self::Entries(map),
            FieldType::List(FieldType::Integer(..) | FieldType::Number(..)) => Self::Numbers,
            FieldType::List(_) => Self::Texts,
            FieldType::Map(map) => Self::Map(map),
            FieldType::Parameters => Self::Parameters,
            FieldType::Env | FieldType::Constants => Self::TextMap,
            FieldType::Json => Self::Any,
            FieldType::JsonMap | FieldType::SlurmOptions | FieldType::Limits(..) => Self::AnyMap,
            FieldType::Text
            | FieldType::NonBlank
            | FieldType::Name
            | FieldType::Regex
            | FieldType::Boolean
            | FieldType::Choice(_)
            | FieldType::Size
            | FieldType::Duration
            | FieldType::Walltime
            | FieldType::SlurmSize
            | FieldType::Signal
            | FieldType::SrunSignal
            | FieldType::Growth(_)
            | FieldType::StderrPattern
            | FieldType::RetryBudget => Self::Text,
        }
    }

    /// Of a field of a map, by the name of the field.
    pub(crate) fn for_key(map: &FieldTable, key: &str) -> Self {
        map.find_field(key).map_or(Self::Any, |(index, _)| Self::from_type(&map.fields[index].field_type))
    }
}

/// What a node may be called: first as we write it.
pub(crate) fn node_names(field: &'static SpecField) -> impl Iterator<Item = &'static str> {
    // A list of maps has a node for each of them and none for all.
    let is_entries = matches!(FieldForm::from_type(&field.field_type), FieldForm::Entries(_));
    let others = field.names().filter(move |name| *name != field.kdl_node() && !is_entries);
    std::iter::once(field.kdl_node()).chain(others)
}

/// The field that a node is, and its key in the spec.
pub(crate) fn find_field_by_node(
    map: &'static FieldTable,
    node: &str,
) -> Option<(&'static SpecField, &'static str)> {
    let field = map.fields.iter().find(|field| node_names(field).any(|name| name == node));
    if let Some(field) = field {
        let alias = field.aliases.iter().find(|alias| **alias == node);
        return Some((field, alias.copied().unwrap_or(field.name)));
    }
    let (_, meant) = LEGACY_NODES.iter().find(|(old, _)| *old == node)?;
    map.fields.iter().find(|field| field.name == *meant).map(|field| (field, field.name))
}
