//! A minimal JSON Schema checker for tests: it supports the keywords that our schema uses, and panics on
//! others.

use regex::Regex;
use serde_json::{Map, Value};

/// Returns the first rule of the schema that `value` violates, if any.
pub(super) fn find_violation(schema: &Value, value: &Value) -> Option<String> {
    SchemaChecker { root: schema }.check(schema, value).err()
}

struct SchemaChecker<'a> {
    root: &'a Value,
}

impl SchemaChecker<'_> {
    fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let keywords = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Bool(false) => return Err(format!("no value is allowed here: {value}")),
            Value::Object(keywords) => keywords,
            other => panic!("not a schema: {other}"),
        };
        for (keyword, wanted) in keywords {
            if !self.holds(keyword, wanted, keywords, value) {
                return Err(format!("{keyword} {wanted} does not match {value}"));
            }
        }
        Ok(())
    }

    fn is_good(&self, schema: &Value, value: &Value) -> bool {
        self.check(schema, value).is_ok()
    }

    fn holds(&self, keyword: &str, wanted: &Value, all: &Map<String, Value>, value: &Value) -> bool {
        let schemas = || wanted.as_array().into_iter().flatten();
        let number = |value: &Value| value.as_f64();
        match keyword {
            "$ref" => {
                let place = wanted.as_str().and_then(|place| place.strip_prefix('#')).expect("is local");
                self.is_good(self.root.pointer(place).expect("is defined"), value)
            }
            "type" => match wanted {
                Value::Array(types) => types.iter().any(|one| has_type(value, one)),
                one => has_type(value, one),
            },
            "enum" => schemas().any(|one| one == value),
            "const" => wanted == value,
            "pattern" => {
                let pattern =
                    Regex::new(wanted.as_str().expect("a pattern is a string")).expect("is a pattern");
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "minLength" => {
                value.as_str().is_none_or(|text| text.chars().count() as u64 >= wanted.as_u64().unwrap())
            }
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= wanted.as_u64().unwrap()),
            "minimum" => number(value).is_none_or(|value| value >= number(wanted).unwrap()),
            "maximum" => number(value).is_none_or(|value| value <= number(wanted).unwrap()),
            "exclusiveMinimum" => number(value).is_none_or(|value| value > number(wanted).unwrap()),
            "required" => value
                .as_object()
                .is_none_or(|map| schemas().all(|name| map.contains_key(name.as_str().unwrap()))),
            "properties" => entries(value).all(|(name, value)| match wanted.get(name) {
                Some(schema) => self.is_good(schema, value),
                None => true,
            }),
            "additionalProperties" => {
                let named = all.get("properties");
                let mut others =
                    entries(value).filter(|(name, _)| named.is_none_or(|all| all.get(name).is_none()));
                others.all(|(_, value)| self.is_good(wanted, value))
            }
            "propertyNames" => {
                entries(value).all(|(name, _)| self.is_good(wanted, &Value::from(name.as_str())))
            }
            "items" => value.as_array().into_iter().flatten().all(|item| self.is_good(wanted, item)),
            "allOf" => schemas().all(|schema| self.is_good(schema, value)),
            "anyOf" => schemas().any(|schema| self.is_good(schema, value)),
            "not" => !self.is_good(wanted, value),
            "if" => !self.is_good(wanted, value) || self.is_good(&all["then"], value),
            "then" | "$schema" | "$id" | "$defs" | "title" | "description" | "default" | "examples"
            | "format" => true,
            other => panic!("unsupported keyword: {other}"),
        }
    }
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn has_type(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("a type is a string") {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("not a type: {other}"),
    }
}
