//! How the fields of a spec look in KDL: which node is which field, and what stands in it. Read off the tables that the
//! decoder goes by, so no field is forgotten here.

use crate::decode::shape::{Field, Map, Type};

/// Nodes that Torc's own examples use, and the field that is meant.
const OLD_NODES: [(&str, &str); 1] = [("depends_on_job", "depends_on")];

/// What stands in a field, as far as a format that knows no fields has to know.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// A scalar that is taken as written, or `true` and `false`.
    Text,
    Number,
    /// A list of texts: several values, several nodes, or both.
    Texts,
    Numbers,
    Map(&'static Map),
    /// A list of maps, a node for each.
    Entries(&'static Map),
    /// Names and what they run through.
    Parameters,
    /// A map of texts.
    TextMap,
    /// Anything.
    Any,
    /// A map of anything.
    AnyMap,
}

impl Form {
    pub(crate) const fn of(is: &Type) -> Self {
        match is {
            Type::Integer(..) | Type::Number(..) => Self::Number,
            Type::List(Type::Map(map)) => Self::Entries(map),
            Type::List(Type::Integer(..) | Type::Number(..)) => Self::Numbers,
            Type::List(_) => Self::Texts,
            Type::Map(map) => Self::Map(map),
            Type::Parameters => Self::Parameters,
            Type::Env | Type::Constants => Self::TextMap,
            Type::Json => Self::Any,
            Type::JsonMap | Type::SlurmOptions | Type::Limits(..) => Self::AnyMap,
            Type::Text
            | Type::Filled
            | Type::Name
            | Type::Regex
            | Type::Boolean
            | Type::Choice(_)
            | Type::Size
            | Type::Duration
            | Type::Walltime
            | Type::SlurmSize
            | Type::Signal
            | Type::SrunSignal
            | Type::Growth(_)
            | Type::StderrPattern
            | Type::RetryBudget => Self::Text,
        }
    }

    /// Of a field of a map, by the name of the field.
    pub(crate) fn of_key(map: &Map, key: &str) -> Self {
        map.find(key).map_or(Self::Any, |(index, _)| Self::of(&map.fields[index].is))
    }
}

/// What a node may be called: first as we write it.
pub(crate) fn nodes(field: &'static Field) -> impl Iterator<Item = &'static str> {
    // A list of maps has a node for each of them and none for all.
    let is_entries = matches!(Form::of(&field.is), Form::Entries(_));
    let others = field.names().filter(move |name| *name != field.kdl_node() && !is_entries);
    std::iter::once(field.kdl_node()).chain(others)
}

/// The field that a node is, and its key in the spec.
pub(crate) fn find(map: &'static Map, node: &str) -> Option<(&'static Field, &'static str)> {
    let field = map.fields.iter().find(|field| nodes(field).any(|name| name == node));
    if let Some(field) = field {
        let alias = field.aliases.iter().find(|alias| **alias == node);
        return Some((field, alias.copied().unwrap_or(field.name)));
    }
    let (_, meant) = OLD_NODES.iter().find(|(old, _)| *old == node)?;
    map.fields.iter().find(|field| field.name == *meant).map(|field| (field, field.name))
}
