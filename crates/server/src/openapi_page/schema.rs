//! Short HTML descriptions of schemas.

use super::{escape_html, push_html, render_paragraphs, render_text};
use serde_json::Value;

/// Renders a named schema with its properties.
pub(super) fn render_schema(page: &mut String, name: &str, says: &Value) {
    push_html(
        page,
        &format!("<details id=\"schema-{0}\"><summary><code>{0}</code></summary><div>", escape_html(name)),
    );
    push_html(page, &render_paragraphs(says["description"].as_str().unwrap_or_default()));
    match says["properties"].as_object() {
        Some(properties) => {
            push_html(page, "<table>");
            let required = says["required"].as_array();
            for (property, meant) in properties {
                let needed = required.is_some_and(|list| list.iter().any(|name| name == property));
                let needed = if needed { "required" } else { "" };
                let (kind, text) = (render_schema_type(meant), render_text(&meant["description"]));
                push_html(
                    page,
                    &format!(
                        "<tr><td><code>{}</code></td><td>{needed}</td><td>{kind}</td><td>{text}</td></tr>",
                        escape_html(property)
                    ),
                );
            }
            push_html(page, "</table>");
        }
        None => push_html(page, &format!("<p>{}</p>", render_schema_type(says))),
    }
    push_html(page, "</div></details>");
}

/// Returns the type as text, `integer`, `[Job]`, `string or null`, with links to named schemas.
pub(super) fn render_schema_type(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = escape_html(reference.rsplit('/').next().unwrap_or(reference));
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    for (word, between) in [("oneOf", " or "), ("anyOf", " or "), ("allOf", " and ")] {
        if let Some(parts) = schema[word].as_array() {
            return parts.iter().map(render_schema_type).collect::<Vec<_>>().join(between);
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        return values
            .iter()
            .map(|value| format!("<code>{}</code>", escape_html(&value_text(value))))
            .collect::<Vec<_>>()
            .join(" ");
    }
    let types: Vec<String> = match &schema["type"] {
        Value::Array(types) => types.iter().map(value_text).collect(),
        Value::String(one) => vec![one.clone()],
        _ => vec!["anything".to_owned()],
    };
    let named = types.into_iter().map(|name| match name.as_str() {
        "array" => format!("[{}]", render_schema_type(&schema["items"])),
        _ => escape_html(&name),
    });
    named.collect::<Vec<_>>().join(" or ")
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::render_schema_type;
    use serde_json::json;

    #[test]
    fn schema_types_are_rendered_as_text() {
        for (schema, words) in [
            (json!({"type": "integer"}), "integer"),
            (json!({"type": ["string", "null"]}), "string or null"),
            (json!({"type": "array", "items": {"$ref": "#/x/Job"}}), "[<a href=\"#schema-Job\">Job</a>]"),
            (json!({"enum": ["a", 1]}), "<code>a</code> <code>1</code>"),
            (json!({"oneOf": [{"type": "null"}, {"$ref": "#/x/J"}]}), "null or <a href=\"#schema-J\">J</a>"),
            (json!({}), "anything"),
        ] {
            assert_eq!(render_schema_type(&schema), words, "{schema}");
        }
    }
}
