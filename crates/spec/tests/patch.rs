//! Tests of new values in the text of a spec, and that nothing else changes.

use std::borrow::Cow;
use windlass_spec::patch::{NewFieldValue, SpecEdit, SpecPatchError, set_values};
use windlass_spec::{SpecFormat, SpecSource};

fn memory<'a>(name: &'a str, value: &'a str) -> SpecEdit<'a> {
    let value = NewFieldValue::Text(Cow::Borrowed(value));
    SpecEdit { list: "resource_requirements", name, field: "memory", value }
}

fn number<'a>(name: &'a str, field: &'a str, value: i64) -> SpecEdit<'a> {
    SpecEdit { list: "resource_requirements", name, field, value: NewFieldValue::Integer(value) }
}

#[track_caller]
fn patched(format: SpecFormat, text: &str, edits: &[SpecEdit<'_>]) -> String {
    let source = SpecSource { name: "spec", text: text.as_bytes(), format: Some(format) };
    set_values(source, edits).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn patch_changes_only_the_value() {
    for (format, before, after) in [
        (
            SpecFormat::Yaml,
            "# head\nname: w\nresource_requirements:\n  - name:   small  # the usual\n    memory:  1g   # odd   spacing\n    num_cpus: 1\njobs: []\n",
            "# head\nname: w\nresource_requirements:\n  - name:   small  # the usual\n    memory:  640m   # odd   spacing\n    num_cpus: 3\njobs: []\n",
        ),
        (
            SpecFormat::Yaml,
            "resource_requirements: [{name: 'small', memory: \"1g\", cpus: 1}]\r\n",
            "resource_requirements: [{name: 'small', memory: \"640m\", cpus: 3}]\r\n",
        ),
        (
            SpecFormat::Json,
            "{\"resource_requirements\": [\n  {\"name\": \"small\", \"num_cpus\": 1,   \"memory\": \"1g\"}]}",
            "{\"resource_requirements\": [\n  {\"name\": \"small\", \"num_cpus\": 3,   \"memory\": \"640m\"}]}",
        ),
        (
            SpecFormat::Json5,
            "// head\n{resource_requirements: [{name: 'small', memory: '1g', /* few */ num_cpus: 1,}],}",
            "// head\n{resource_requirements: [{name: 'small', memory: \"640m\", /* few */ num_cpus: 3,}],}",
        ),
        (
            SpecFormat::Toml,
            "# head\n[[resource_requirements]]\nname = 'small'\nmemory = '1g' # ok\nnum_cpus   = 1\n",
            "# head\n[[resource_requirements]]\nname = 'small'\nmemory = \"640m\" # ok\nnum_cpus   = 3\n",
        ),
        (
            SpecFormat::Kdl,
            "// head\nresource_requirements \"small\" memory=\"1g\" num_cpus=1 // ok\njob \"a\"\n",
            "// head\nresource_requirements \"small\" memory=\"640m\" num_cpus=3 // ok\njob \"a\"\n",
        ),
    ] {
        let edits = [memory("small", "640m"), number("small", "num_cpus", 3)];
        assert_eq!(patched(format, before, &edits), after);
    }
}

#[test]
fn added_field_has_the_style_of_its_neighbors() {
    for (format, before, after) in [
        (
            SpecFormat::Yaml,
            "resource_requirements:\n- name: small # it\n\n  num_cpus: 1   # few\n\n- name: large\n  num_cpus: 9\n",
            "resource_requirements:\n- name: small # it\n\n  num_cpus: 1   # few\n  memory: 640m\n\n- name: large\n  num_cpus: 9\n",
        ),
        (
            SpecFormat::Yaml,
            "resource_requirements:\n  - {name: small, num_cpus: 1} # it\n",
            "resource_requirements:\n  - {name: small, num_cpus: 1, memory: 640m} # it\n",
        ),
        (
            SpecFormat::Json,
            "{\n  \"resource_requirements\": [\n    {\n      \"name\": \"small\",\n      \"num_cpus\": 1\n    }\n  ]\n}\n",
            "{\n  \"resource_requirements\": [\n    {\n      \"name\": \"small\",\n      \"num_cpus\": 1,\n      \"memory\": \"640m\"\n    }\n  ]\n}\n",
        ),
        (
            SpecFormat::Json5,
            "{\n  resource_requirements: [\n    {\n      name: 'small', // it\n      num_cpus: 1, // few\n    },\n  ],\n}\n",
            "{\n  resource_requirements: [\n    {\n      name: 'small', // it\n      num_cpus: 1, // few\n      memory: \"640m\",\n    },\n  ],\n}\n",
        ),
        (
            SpecFormat::Toml,
            "[[resource_requirements]]\nname = 'small'\nnum_cpus = 1 # few\n\n[[jobs]]\nname = 'a'\n",
            "[[resource_requirements]]\nname = 'small'\nnum_cpus = 1 # few\nmemory = \"640m\"\n\n[[jobs]]\nname = 'a'\n",
        ),
        (
            SpecFormat::Toml,
            "resource_requirements = [{ name = 'small', num_cpus = 1 }]\n",
            "resource_requirements = [{ name = 'small', num_cpus = 1, memory = \"640m\" }]\n",
        ),
        (
            SpecFormat::Kdl,
            "resource_requirements \"small\" {\n    num_cpus 1 // few\n}\n",
            "resource_requirements \"small\" {\n    num_cpus 1 // few\n    memory \"640m\"\n}\n",
        ),
        (
            SpecFormat::Kdl,
            "resource_requirements \"small\" num_cpus=1 // few\n",
            "resource_requirements \"small\" memory=\"640m\" num_cpus=1 // few\n",
        ),
        (
            SpecFormat::Kdl,
            "resource_requirements \"small\" { num_cpus 1; }\n",
            "resource_requirements \"small\" memory=\"640m\" { num_cpus 1; }\n",
        ),
    ] {
        assert_eq!(patched(format, before, &[memory("small", "640m")]), after);
    }
}

#[test]
fn missing_entry_and_list_are_added() {
    for (format, before, after) in [
        (
            SpecFormat::Yaml,
            "resource_requirements:\n  - name: small\n    num_cpus: 1 # few\n# about jobs\njobs: []\n",
            "resource_requirements:\n  - name: small\n    num_cpus: 1 # few\n  - name: new\n    memory: 640m\n    num_cpus: 2\n# about jobs\njobs: []\n",
        ),
        (
            SpecFormat::Yaml,
            "resource_requirements:\n- {name: small, num_cpus: 1} # few\n",
            "resource_requirements:\n- {name: small, num_cpus: 1} # few\n- {name: new, memory: 640m, num_cpus: 2}\n",
        ),
        (
            SpecFormat::Yaml,
            "name: w",
            "name: w\nresource_requirements:\n  - name: new\n    memory: 640m\n    num_cpus: 2\n",
        ),
        (
            SpecFormat::Json,
            "{\"name\": \"w\"}\n",
            "{\"name\": \"w\", \"resource_requirements\": [{\"name\": \"new\", \"memory\": \"640m\", \"num_cpus\": 2}]}\n",
        ),
        (
            SpecFormat::Json5,
            "{\n  name: 'w',\n  resource_requirements: [\n    {name: 'small'},\n  ],\n}\n",
            "{\n  name: 'w',\n  resource_requirements: [\n    {name: 'small'},\n    {name: \"new\", memory: \"640m\", num_cpus: 2},\n  ],\n}\n",
        ),
        (
            SpecFormat::Toml,
            "name = 'w'\n[[jobs]]\nname = 'a'\n",
            "name = 'w'\n[[jobs]]\nname = 'a'\n\n[[resource_requirements]]\nname = \"new\"\nmemory = \"640m\"\nnum_cpus = 2\n",
        ),
        (
            SpecFormat::Toml,
            "[[resource_requirements]]\nname = 'small'\n\n[[jobs]]\nname = 'a'\n",
            "[[resource_requirements]]\nname = 'small'\n\n[[resource_requirements]]\nname = \"new\"\nmemory = \"640m\"\nnum_cpus = 2\n\n[[jobs]]\nname = 'a'\n",
        ),
        (
            SpecFormat::Kdl,
            "resource_requirements \"small\" {\n    num_cpus 1\n}\njob \"a\"\n",
            "resource_requirements \"small\" {\n    num_cpus 1\n}\nresource_requirements \"new\" num_cpus=2 memory=\"640m\"\njob \"a\"\n",
        ),
        (
            SpecFormat::Kdl,
            "name \"w\"\n",
            "name \"w\"\nresource_requirements \"new\" num_cpus=2 memory=\"640m\"\n",
        ),
    ] {
        assert_eq!(patched(format, before, &[memory("new", "640m"), number("new", "num_cpus", 2)]), after);
    }
}

#[test]
fn requirements_are_added_to_a_job() {
    let edit = SpecEdit {
        list: "jobs",
        name: "sim_{i}",
        field: "resource_requirements",
        value: NewFieldValue::Text("tuned".into()),
    };
    let before = "jobs:\n  - name: sim_{i}\n    command: |\n      set -e\n      ./sim\n    parameters:\n      i: 1:4\n";
    let after = "jobs:\n  - name: sim_{i}\n    resource_requirements: tuned\n    command: |\n      set -e\n      ./sim\n    parameters:\n      i: 1:4\n";
    assert_eq!(patched(SpecFormat::Yaml, before, &[edit]), after);
}

#[test]
fn shared_values_are_not_patched() {
    let text = "resource_requirements:\n  - &a {name: small, memory: &m 1g}\n  - {name: large, memory: *m}\n";
    let source = SpecSource::new("spec.yaml", text.as_bytes());
    let error = set_values(source, &[memory("small", "2g")]).expect_err("another entry has the same value");
    assert_eq!(
        error.to_string(),
        "cannot set `memory` of `small` in `resource_requirements`: this would also change other values; edit it manually"
    );
    let text = "resource_requirements: [{name: small, memory: [1, 2]}]\n";
    let error = set_values(SpecSource::new("spec.yaml", text.as_bytes()), &[memory("small", "2g")]);
    assert!(matches!(error, Err(SpecPatchError::ManualEditNeeded { .. })), "{error:?}");
    let error = set_values(SpecSource::new("spec.yaml", b"a: [\n"), &[memory("small", "2g")]);
    assert!(matches!(error, Err(SpecPatchError::Unreadable(_))), "{error:?}");
}
