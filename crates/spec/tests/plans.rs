//! Random valid specs: every format gives the same plan, also after formatting.

mod common;

use common::plan;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use windlass_spec::{SpecFormat, SpecSource, convert_spec, reformat_spec};

/// An entry of jobs, optionally with files that they write and inputs that they read.
#[derive(Clone, Debug)]
struct Stage {
    /// The values of the parameters `a` and `b`, which are in all its names.
    parameters: Vec<Value>,
    /// Whether values are zipped: each parameter is then written out, with the same number of values.
    zip: bool,
    writes: Option<WrittenObjects>,
    /// Output of an earlier stage.
    after: Option<(Index, DependencyForm)>,
    /// Inserted in texts where anything is allowed.
    odd: String,
    fields: Vec<Field>,
}

#[derive(Clone, Copy, Debug)]
enum WrittenObjects {
    Files,
    FilesInCommand,
    UserData,
}

#[derive(Clone, Copy, Debug)]
enum DependencyForm {
    Regex,
    /// By names with all parameters of that stage filled in: only its first job.
    FirstByName,
    /// Reads its output.
    Products,
}

/// Optional fields of a job.
#[derive(Clone, Copy, Debug)]
enum Field {
    Env,
    Script,
    Requirements,
    Priority,
    Labels,
    Sites,
    Stdio,
    Handler,
    Shared,
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-5i64..5, 0i64..3).prop_map(|(first, more)| json!(format!("{first}:{}", first + more))),
        (0i64..5, 0i64..3).prop_map(|(first, more)| json!(format!("{first}:{}:0.5", first + more))),
        btree_set(-99i64..99, 1..4).prop_map(|all| json!(all)),
        btree_set("[a-z]{1,3}", 1..4).prop_map(|all| json!(all)),
        btree_set("[a-z]{1,3}", 1..4).prop_map(|all| {
            let quoted: Vec<String> = all.iter().map(|word| format!("'{word}'")).collect();
            json!(format!("[{}]", quoted.join(", ")))
        }),
    ]
}

/// Braces that are not placeholders contain a space.
fn odd() -> impl Strategy<Value = String> {
    "[ -~äß日\n\r\t'\"\\\\#:,{}$%&*!|>-]{0,16}".prop_map(|text| text.replace('{', "{ "))
}

fn stage() -> impl Strategy<Value = Stage> {
    let parameters = prop_oneof![
        (vec(values(), 0..3), Just(false)),
        (Just(vec![json!(["x", "y"]), json!([0.5, 7])]), Just(true)),
    ];
    let writes = prop::sample::select(vec![
        None,
        Some(WrittenObjects::Files),
        Some(WrittenObjects::FilesInCommand),
        Some(WrittenObjects::UserData),
    ]);
    let after = prop::sample::select(vec![
        DependencyForm::Regex,
        DependencyForm::FirstByName,
        DependencyForm::Products,
    ]);
    let fields = prop::sample::subsequence(
        vec![
            Field::Env,
            Field::Script,
            Field::Requirements,
            Field::Priority,
            Field::Labels,
            Field::Sites,
            Field::Stdio,
            Field::Handler,
            Field::Shared,
        ],
        0..4,
    );
    (parameters, writes, prop::option::of((any::<Index>(), after)), odd(), fields).prop_map(
        |((parameters, zip), writes, after, odd, fields)| Stage {
            parameters,
            zip,
            writes,
            after,
            odd,
            fields,
        },
    )
}

impl Stage {
    /// `_{a}_{b:03d}`, as far as the stage has these parameters.
    fn suffix(&self) -> String {
        let mut suffix: String = ["_{a}", "_{b:03d}"][..self.parameters.len()].concat();
        if self.is_shared() {
            suffix.push_str("_{shared}");
        }
        suffix
    }

    fn is_shared(&self) -> bool {
        self.fields.iter().any(|field| matches!(field, Field::Shared))
    }

    /// The fields that give an entry as many instances as the stage has jobs.
    fn sweep(&self) -> Map<String, Value> {
        let mut sweep = Map::new();
        if !self.parameters.is_empty() {
            let named = ["a", "b"].map(str::to_owned).into_iter().zip(self.parameters.clone());
            sweep.insert("parameters".to_owned(), Value::Object(named.collect()));
        }
        if self.zip {
            sweep.insert("parameter_mode".to_owned(), json!("zip"));
        }
        if self.is_shared() {
            sweep.insert("use_parameters".to_owned(), json!(["shared"]));
        }
        // A shared parameter would need the same length as the others.
        if self.zip && self.is_shared() {
            sweep.remove("parameter_mode");
        }
        sweep
    }

    /// The entry of the jobs, and that of their output with the key of its list.
    fn entries(&self, number: usize, stages: &[Self]) -> (Value, Option<(&'static str, Value)>) {
        let mut job = self.sweep();
        let suffix = self.suffix();
        let mut command = format!("run {{v}} {}", self.odd);
        let product = format!("product{number}{suffix}");
        let made = self.writes.map(|writes| match writes {
            WrittenObjects::Files | WrittenObjects::FilesInCommand => {
                if matches!(writes, WrittenObjects::Files) {
                    job.insert("output_files".to_owned(), json!([product]));
                } else {
                    command.extend([" > ${files.output.", &product, "}"]);
                }
                ("files", json!({"name": product, "path": format!("out/{number}{suffix} {{v}}.dat")}))
            }
            WrittenObjects::UserData => {
                job.insert("output_user_data".to_owned(), json!([product]));
                (
                    "user_data",
                    json!({"name": product, "data": {"odd": self.odd, "list": [1, 0.5, "null", "{v}"]}}),
                )
            }
        });
        if let Some((earlier, how)) = self.after.filter(|_| number > 0) {
            let earlier = earlier.index(number);
            let (key, value) = match (how, stages[earlier].writes) {
                (DependencyForm::Products, Some(WrittenObjects::UserData)) => {
                    ("input_user_data_regexes", format!("^product{earlier}(_|$)"))
                }
                (DependencyForm::Products, Some(_)) => {
                    ("input_file_regexes", format!("^product{earlier}(_|$)"))
                }
                (DependencyForm::FirstByName, _) if stages[earlier].suffix().is_empty() => {
                    ("depends_on", format!("stage{earlier}"))
                }
                _ => ("depends_on_regexes", format!("^stage{earlier}(_|$)")),
            };
            job.insert(key.to_owned(), json!([value]));
        }
        job.extend(self.fields.iter().filter_map(|field| self.field(*field)));
        job.insert("name".to_owned(), json!(format!("stage{number}{suffix}")));
        job.insert("command".to_owned(), json!(command));
        let made = made.map(|(list, mut entry)| {
            if let Value::Object(fields) = &mut entry {
                fields.extend(self.sweep());
            }
            (list, entry)
        });
        (Value::Object(job), made)
    }

    fn field(&self, field: Field) -> Option<(String, Value)> {
        let (name, value) = match field {
            Field::Env => ("env", json!({"ODD": self.odd, "V": "{v}", "N": "0755"})),
            Field::Script => ("invocation_script", json!(format!("source x\n{} y", self.odd))),
            Field::Requirements => ("resource_requirements", json!("small")),
            Field::Priority => ("priority", json!(7)),
            Field::Labels => ("labels", json!(["gpu", "yes"])),
            Field::Sites => ("sites", json!(["north", "3"])),
            Field::Stdio => ("stdio", json!({"mode": "combined", "delete_on_success": true})),
            Field::Handler => ("failure_handler", json!("again")),
            Field::Shared => return None,
        };
        Some((name.to_owned(), value))
    }
}

fn spec(stages: &[Stage]) -> String {
    let mut lists: Map<String, Value> = Map::new();
    for (number, stage) in stages.iter().enumerate() {
        let (job, made) = stage.entries(number, stages);
        for (list, entry) in [("jobs", job)].into_iter().chain(made) {
            let list = lists.entry(list).or_insert_with(|| json!([]));
            list.as_array_mut().expect("a list").push(entry);
        }
    }
    let mut spec = json!({
        "name": "by chance",
        "variables": {"v": stages[0].odd, "w": "{v}!"},
        "parameters": {"shared": [1, "two"]},
        "metadata": {"odd": stages[0].odd, "deep": [{"n": 1.5, "t": true, "s": "true"}]},
        "resource_requirements": [{"name": "small", "num_cpus": 2, "memory": "1g", "runtime": "PT1H"}],
        "failure_handlers": [{"name": "again", "rules": [{"exit_codes": [1], "max_retries": 2}]}],
    });
    spec.as_object_mut().expect("a map").extend(lists);
    spec.to_string()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_are_equal_in_every_format_and_layout(stages in vec(stage(), 1..5)) {
        let written = spec(&stages);
        let expected = plan(SpecFormat::Json, &written);
        for format in SpecFormat::ALL {
            let source = SpecSource { name: "good", text: written.as_bytes(), format: Some(SpecFormat::Json) };
            let converted = convert_spec(source, format).unwrap_or_else(|problems| panic!("{problems}"));
            prop_assert_eq!(&plan(format, &converted), &expected, "{}", converted);
            let source = SpecSource { name: "converted", text: converted.as_bytes(), format: Some(format) };
            let laid_out = reformat_spec(source).unwrap_or_else(|problems| panic!("{problems}"));
            prop_assert_eq!(&plan(format, &laid_out), &expected, "{}", laid_out);
        }
    }
}
