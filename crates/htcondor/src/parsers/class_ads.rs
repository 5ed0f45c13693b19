//! Parser of the output of `condor_q -json` and `condor_history -json`: a list of ads.
//!
//! Without a match, `condor_q` prints nothing at all and `condor_history` an empty list. Truncated output is an
//! error, never an empty list: "not in the queue" must not be concluded from half an answer.

use serde_json::{Map, Value};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassAd(pub Map<String, Value>);

#[derive(Debug, thiserror::Error)]
#[error("the output of HTCondor is not a list of ads: {reason}")]
pub struct ClassAdError {
    reason: String,
}

pub fn parse_ads(printed: &[u8]) -> Result<Vec<ClassAd>, ClassAdError> {
    if printed.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let ads: Vec<Map<String, Value>> =
        serde_json::from_slice(printed).map_err(|error| ClassAdError { reason: error.to_string() })?;
    Ok(ads.into_iter().map(ClassAd).collect())
}

impl ClassAd {
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str().filter(|text| strip_expression(text).is_none())
    }

    /// Integers may be written with a decimal point.
    pub fn integer(&self, name: &str) -> Option<i64> {
        let value = self.0.get(name)?;
        value.as_i64().or_else(|| to_whole_number(value.as_f64()?))
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    pub fn boolean(&self, name: &str) -> Option<bool> {
        self.0.get(name)?.as_bool()
    }

    /// An expression that HTCondor did not evaluate: `/Expr(a + b)/`, without the marks.
    pub fn expression(&self, name: &str) -> Option<&str> {
        strip_expression(self.0.get(name)?.as_str()?)
    }

    /// The memory in use, in MB. `MemoryUsage` is an expression, whose value this computes.
    pub fn memory_used(&self) -> Option<u64> {
        let kilobytes = self.integer("ResidentSetSize_RAW").or_else(|| self.integer("ResidentSetSize"))?;
        Some(u64::try_from(kilobytes).ok()?.div_ceil(1024))
    }
}

fn strip_expression(text: &str) -> Option<&str> {
    text.strip_prefix("/Expr(")?.strip_suffix(")/")
}

#[expect(clippy::cast_possible_truncation, reason = "exact within the bounds that are checked")]
fn to_whole_number(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 9.0e15).then_some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ad_of_the_history_is_parsed() {
        let ads = parse_ads(include_bytes!("../../tests/data/condor_history.node.json")).unwrap();
        let ad = &ads[0];
        assert_eq!((ad.integer("ExitCode"), ad.boolean("ExitBySignal")), (Some(0), Some(false)));
        assert_eq!(ad.text("MATCH_GLIDEIN_CMSSite"), Some("T2_CH_Gamma"));
        assert_eq!(ad.text("MemoryUsage"), None, "an expression is not a string");
        assert_eq!(ad.expression("MemoryUsage"), Some("((ResidentSetSize + 1023) / 1024)"));
        assert_eq!(ad.integer("RemoteWallClockTime"), Some(1));
        assert!(ad.memory_used().is_some());
    }

    #[test]
    fn empty_output_has_no_ads_and_truncated_output_fails() {
        for empty in ["", "\n", "[\n]", "[]\n"] {
            assert_eq!(parse_ads(empty.as_bytes()).unwrap(), [], "{empty:?}");
        }
        let held = include_bytes!("../../tests/data/condor_q.held.json");
        assert_eq!(parse_ads(held).unwrap()[0].integer("HoldReasonCode"), Some(21));
        for cut in (1..held.len() - 2).step_by(7) {
            assert!(parse_ads(&held[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn integers_are_read_only_from_whole_numbers() {
        let ad = parse_ads(br#"[{"a":1.0,"b":1.5,"c":1e300,"d":"/Expr(x)/","e":-2}]"#).unwrap().remove(0);
        assert_eq!(
            [ad.integer("a"), ad.integer("b"), ad.integer("c"), ad.integer("e")],
            [Some(1), None, None, Some(-2)]
        );
        assert_eq!(ad.number("b"), Some(1.5));
    }
}
