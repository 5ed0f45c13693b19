//! Tests of the canonical layout.

use super::*;

#[track_caller]
fn laid_out(format: SpecFormat, text: &str) -> String {
    let once = reformat_spec(SpecSource { name: "spec", text: text.as_bytes(), format: Some(format) });
    let once = once.unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let twice = reformat_spec(SpecSource { name: "spec", text: once.as_bytes(), format: Some(format) });
    assert_eq!(twice.as_ref(), Ok(&once), "formatted twice");
    once
}

#[test]
fn yaml_is_formatted() {
    let text = "\
# head


---
name:   sim   # its name
env: &env {  A: 1,B: \"x\"  }   # short
jobs:   # all of them
-   name: a

    command: |
          set -e
            deeper

          ./a
    depends_on:
    - b
    # the last one of a
    - c


# about b
-   <<: *env
    name: 'b'
    command: >- # folded | so
       ./b
       --fast
    env: {
      # why
      A: 1,
      B: 2 }
-
   - nested
   -  - deeper # here
- {name: a_very_long_name_that_fills_the_line, command: \"and a command that goes on and on\", priority: 7, env: {A: 1}}
description: two
  lines
empty:
# tail
";
    let expected = "\
# head

name: sim # its name
env: &env {A: 1, B: \"x\"} # short
jobs: # all of them
  - name: a

    command: |
      set -e
        deeper

      ./a
    depends_on:
      - b
      # the last one of a
      - c

  # about b
  - <<: *env
    name: 'b'
    command: >- # folded | so
      ./b
      --fast
    env:
      # why
      A: 1
      B: 2
  - - nested
    - - deeper # here
  - name: a_very_long_name_that_fills_the_line
    command: \"and a command that goes on and on\"
    priority: 7
    env: {A: 1}
description: two lines
empty:
# tail
";
    assert_eq!(laid_out(SpecFormat::Yaml, text), expected);
}

#[test]
fn json_is_formatted() {
    let text = "{ \"name\":\"sim\",\n\n\n \"list\":[1,2 , 3], \"jobs\":[\n{\"name\":\"a\",\"depends_on\":[ ]}], \"env\":{}}";
    let expected = "{\n  \"name\": \"sim\",\n\n  \"list\": [1, 2, 3],\n  \"jobs\": [\n    {\"name\": \"a\", \"depends_on\": []}\n  ],\n  \"env\": {}\n}\n";
    assert_eq!(laid_out(SpecFormat::Json, text), expected);
}

#[test]
fn json5_is_formatted() {
    let text = "// head\n{ name:'sim', // its name\n  /* all */ jobs:[ // here\n {name:'a',x:0x1F},\n // tail\n ]\n}\n// end\n";
    let expected = "// head\n{\n  name: 'sim', // its name\n  /* all */\n  jobs: [ // here\n    {name: 'a', x: 0x1F},\n    // tail\n  ],\n}\n// end\n";
    assert_eq!(laid_out(SpecFormat::Json5, text), expected);
}

#[test]
fn toml_is_formatted() {
    let text = "# head\nname='sim'   # its name\n\n\n a.b  =  1\nlist=[1,\n  2, # two\n  # tail\n]\nshort=[ 1,2 ]\n# about a\n[ env ]\nA={x=1,y=[ 2 ]}\n[[jobs]] # first\nname=\"a\"\n";
    let expected = "# head\nname = 'sim' # its name\n\na.b = 1\nlist = [\n  1,\n  2, # two\n  # tail\n]\nshort = [1, 2]\n\n# about a\n[env]\nA = { x = 1, y = [2] }\n\n[[jobs]] # first\nname = \"a\"\n";
    assert_eq!(laid_out(SpecFormat::Toml, text), expected);
}

#[test]
fn kdl_is_formatted() {
    let text = "// head\nname   \"sim\" ; user ada\n\n\njob \"a\"   { // first\n command \"x\" // do it\n  depends_on \"b\"   \"c\"; /- priority 3\n // tail\n}\nfile \"f\" path = \"p\" /* here */\n/- job \"gone\" {\n  command \"y\"\n}\nenv {}\nmetadata { a { b 1; }; }\n";
    let expected = "// head\nname \"sim\"\nuser ada\n\njob \"a\" { // first\n    command \"x\" // do it\n    depends_on \"b\" \"c\"\n    /- priority 3\n    // tail\n}\nfile \"f\" path=\"p\" /* here */\n/- job \"gone\" {\n  command \"y\"\n}\nenv {}\nmetadata {\n    a {\n        b 1\n    }\n}\n";
    let laid_out = laid_out(SpecFormat::Kdl, text);
    assert_eq!(laid_out, expected);
}

#[test]
fn unsupported_syntax_is_rejected_instead_of_dropped() {
    for (format, text) in [
        (SpecFormat::Yaml, "name: w\nx: !!str 5\n"),
        (SpecFormat::Yaml, "%YAML 1.2\n---\nname: w\n"),
        (SpecFormat::Yaml, "name: |2\n    x\n"),
        (SpecFormat::Kdl, "job \"a\" /* within */ priority=5\n"),
        (SpecFormat::Kdl, "user (u8)5\n"),
        (SpecFormat::Toml, "a = { b = 1, # x\n c = 2 }\n"),
    ] {
        let result = reformat_spec(SpecSource { name: "spec", text: text.as_bytes(), format: Some(format) });
        let code = result.err().and_then(|diagnostics| diagnostics.list.first().map(|first| first.code));
        assert_eq!(code, Some("cannot-format"), "{text}");
    }
}

/// Found by random tests: after formatting once, this could not be formatted again.
#[test]
fn file_of_a_single_text_is_rejected() {
    let text = "#\"my][[: o日c.5\\n=#t-1a+5j: #\"# t日]]\u{2028}cf*a\"#'y';(\n  |\n";
    for text in [text, "# a comment with 5\n|\n  text\n", "|2\n  text\n", ">\n  a\n", "#\n\u{2028}\n"] {
        let source = SpecSource { name: "chance", text: text.as_bytes(), format: Some(SpecFormat::Yaml) };
        assert!(reformat_spec(source).is_err(), "{text:?}");
    }
}
