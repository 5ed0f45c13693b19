//! The KDL form of spec fields: the node names and the content of each field, derived from the tables of the
//! decoder.

use crate::decode::field_tables::{FieldTable, FieldType, SpecField};

/// Nodes used in Torc's own examples, and the fields they stand for.
const LEGACY_NODES: [(&str, &str); 1] = [("depends_on_job", "depends_on")];

/// The content of a field, as far as the KDL parser needs to know it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FieldForm {
    /// A scalar as written, or `true` and `false`.
    Text,
    Number,
    /// A list of texts: several values, several nodes, or both.
    Texts,
    Numbers,
    Map(&'static FieldTable),
    /// A list of maps, one node each.
    Entries(&'static FieldTable),
    /// Names and their values.
    Parameters,
    /// A map of texts.
    TextMap,
    /// Any value.
    Any,
    /// A map with any content.
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

    /// Returns the form of a field of a map, by the name of the field.
    pub(crate) fn for_key(map: &FieldTable, key: &str) -> Self {
        map.find_field(key).map_or(Self::Any, |(index, _)| Self::from_type(&map.fields[index].field_type))
    }
}

/// Returns the node names of a field, the one that is written first.
pub(crate) fn node_names(field: &'static SpecField) -> impl Iterator<Item = &'static str> {
    // A list of maps has one node per map and none for the list.
    let is_entries = matches!(FieldForm::from_type(&field.field_type), FieldForm::Entries(_));
    let others = field.names().filter(move |name| *name != field.kdl_node() && !is_entries);
    std::iter::once(field.kdl_node()).chain(others)
}

/// Returns the field of a node, and its key in the spec.
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
