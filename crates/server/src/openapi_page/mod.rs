//! Renders an OpenAPI document as one HTML file without scripts or external resources. Pure.

mod schema;

use crate::error::{API_PREFIX, TORC_PREFIX};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// One operation of the API.
struct DocumentedOperation<'a> {
    method: &'a str,
    path: &'a str,
    definition: &'a Value,
}

/// The whole page.
pub(crate) fn render_page(document: &Value) -> String {
    let groups = group_by_tag(document);
    let schemas = document["components"]["schemas"].as_object();
    let mut page = String::with_capacity(1 << 20);
    push_html(&mut page, "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    push_html(
        &mut page,
        "<meta name=\"viewport\" content=\"width=device-width\"><title>Windlass API</title>",
    );
    push_html(&mut page, &format!("<style>{STYLE}</style></head><body>"));
    let version = render_text(&document["info"]["version"]);
    push_html(&mut page, &format!("<header><h1>Windlass API <small>{version}</small></h1>"));
    push_html(
        &mut page,
        &format!(
            "<p>Paths are below <code>{API_PREFIX}</code>; those of the Torc contract are also available below \
             <code>{TORC_PREFIX}</code>. The document for programs: <a href=\"{API_PREFIX}/openapi.json\">openapi.json</a>.</p></header>"
        ),
    );
    render_contents(&mut page, &groups);
    push_html(&mut page, "<main>");
    for (tag, operations) in &groups {
        push_html(&mut page, &format!("<section><h2 id=\"tag-{0}\">{0}</h2>", escape_html(tag)));
        for operation in operations {
            render_operation(&mut page, operation);
        }
        push_html(&mut page, "</section>");
    }
    push_html(&mut page, "<section><h2 id=\"schemas\">Schemas</h2>");
    for (name, says) in schemas.into_iter().flatten() {
        schema::render_schema(&mut page, name, says);
    }
    push_html(&mut page, "</section></main></body></html>");
    page
}

/// Operations by tag; operations available at both prefixes are shown once.
fn group_by_tag(document: &Value) -> BTreeMap<&str, Vec<DocumentedOperation<'_>>> {
    let mut groups: BTreeMap<&str, Vec<DocumentedOperation<'_>>> = BTreeMap::new();
    let paths = document["paths"].as_object();
    for (path, item) in paths.into_iter().flatten().filter(|(path, _)| !path.starts_with(TORC_PREFIX)) {
        for method in METHODS {
            let Some(says) = item.get(method) else { continue };
            let tag = says["tags"][0].as_str().unwrap_or("other");
            groups.entry(tag).or_default().push(DocumentedOperation { method, path, definition: says });
        }
    }
    groups
}

fn render_contents(page: &mut String, groups: &BTreeMap<&str, Vec<DocumentedOperation<'_>>>) {
    push_html(page, "<nav><ul>");
    for (tag, operations) in groups {
        let count = operations.len();
        push_html(
            page,
            &format!("<li><a href=\"#tag-{0}\">{0}</a> <small>{count}</small></li>", escape_html(tag)),
        );
    }
    push_html(page, "<li><a href=\"#schemas\">Schemas</a></li></ul></nav>");
}

fn render_operation(page: &mut String, operation: &DocumentedOperation<'_>) {
    let DocumentedOperation { method, path, definition: says } = operation;
    let summary = render_text(&says["summary"]);
    push_html(page, &format!("<details><summary><b class=\"{method}\">{}</b> ", method.to_uppercase()));
    push_html(page, &format!("<code>{}</code> <span>{summary}</span></summary><div>", escape_html(path)));
    push_html(page, &render_paragraphs(says["description"].as_str().unwrap_or_default()));
    if let Some(parameters) = says["parameters"].as_array().filter(|list| !list.is_empty()) {
        push_html(page, "<h4>Parameters</h4><table>");
        for parameter in parameters {
            render_parameter(page, parameter);
        }
        push_html(page, "</table>");
    }
    if let Some(content) = says["requestBody"]["content"].as_object() {
        push_html(page, &format!("<h4>Body</h4><p>{}</p>", render_media_types(content)));
    }
    if let Some(responses) = says["responses"].as_object() {
        push_html(page, "<h4>Answers</h4><table>");
        for (code, response) in responses {
            let body = response["content"].as_object().map(render_media_types).unwrap_or_default();
            let rendered = render_text(&response["description"]);
            push_html(
                page,
                &format!(
                    "<tr><td><code>{}</code></td><td>{rendered}</td><td>{body}</td></tr>",
                    escape_html(code)
                ),
            );
        }
        push_html(page, "</table>");
    }
    push_html(page, "</div></details>");
}

fn render_parameter(page: &mut String, parameter: &Value) {
    let name = render_text(&parameter["name"]);
    let place = render_text(&parameter["in"]);
    let needed = if parameter["required"] == true { ", required" } else { "" };
    let kind = schema::render_schema_type(&parameter["schema"]);
    let rendered = render_text(&parameter["description"]);
    push_html(
        page,
        &format!(
            "<tr><td><code>{name}</code></td><td>{place}{needed}</td><td>{kind}</td><td>{rendered}</td></tr>"
        ),
    );
}

/// Returns the media type and schema of a body: `application/json: Workflow`.
fn render_media_types(content: &Map<String, Value>) -> String {
    let kinds = content.iter().map(|(media, says)| {
        format!("<small>{}</small> {}", escape_html(media), schema::render_schema_type(&says["schema"]))
    });
    kinds.collect::<Vec<_>>().join(", ")
}

fn push_html(page: &mut String, html: &str) {
    page.push_str(html);
}

/// Returns an HTML-escaped text of the document.
fn render_text(value: &Value) -> String {
    render_code_spans(value.as_str().unwrap_or_default())
}

/// Renders paragraphs and `code`, the only Markdown in our descriptions.
fn render_paragraphs(markdown: &str) -> String {
    let parts = markdown.split("\n\n").map(str::trim).filter(|part| !part.is_empty());
    parts.fold(String::new(), |html, part| html + "<p>" + &render_code_spans(part) + "</p>")
}

fn render_code_spans(markdown: &str) -> String {
    let mut html = String::new();
    for (index, part) in markdown.split('`').enumerate() {
        match index % 2 {
            1 => write!(html, "<code>{}</code>", escape_html(part)).expect("writing to a String cannot fail"),
            _ => html.push_str(&escape_html(part)),
        }
    }
    html
}

fn escape_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn page_shows_operations_once_and_escapes_html() {
        let operation = json!({"tags": ["jobs"], "summary": "Ask for <b>", "description": "First `a<b`.\n\nSecond.",
            "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}}],
            "responses": {"200": {"description": "ok", "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}}}}});
        let page = render_page(&json!({
            "info": {"version": "1"},
            "paths": {"/api/v1/jobs/{id}": {"get": operation}, "/torc-service/v1/jobs/{id}": {"get": operation}},
            "components": {"schemas": {"Job": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}}},
        }));
        assert_eq!(page.matches("Ask for &lt;b&gt;").count(), 1, "{page}");
        assert!(page.contains("<p>First <code>a&lt;b</code>.</p><p>Second.</p>"), "{page}");
        assert!(
            page.contains("<a href=\"#schema-Job\">Job</a>") && page.contains("id=\"schema-Job\""),
            "{page}"
        );
        assert!(!page.contains("<script") && !page.contains("src="), "{page}");
    }

    #[test]
    fn page_shows_the_whole_openapi_document() {
        let document: Value = serde_json::from_str(&crate::build_openapi().to_json().unwrap()).unwrap();
        let page = render_page(&document);
        let paths = document["paths"].as_object().unwrap().keys();
        for path in paths.filter(|path| !path.starts_with(TORC_PREFIX)) {
            assert!(page.contains(&escape_html(path)), "{path}");
        }
    }
}
