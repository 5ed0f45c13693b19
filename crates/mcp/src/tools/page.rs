//! Pages of long lists.

use serde::Serialize;
use serde_json::{Value, json};

/// Default page length.
pub(super) const DEFAULT_PAGE_LENGTH: u64 = 50;
/// Maximum page length.
pub(super) const MAX_PAGE_LENGTH: u64 = 500;
/// Maximum bytes of a page; further items are on the next page.
pub(super) const MAX_PAGE_BYTES: usize = 256 << 10;

/// Offset and limit of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageRange {
    pub(super) offset: u64,
    pub(super) limit: u64,
}

impl PageRange {
    pub(super) fn new(offset: Option<u64>, limit: Option<u64>) -> Self {
        Self {
            offset: offset.unwrap_or(0),
            limit: limit.unwrap_or(DEFAULT_PAGE_LENGTH).clamp(1, MAX_PAGE_LENGTH),
        }
    }

    /// One more than is shown, to detect whether there is more.
    pub(super) const fn fetch_limit(&self) -> u64 {
        self.limit + 1
    }

    /// Builds a page from the items found at the offset.
    pub(super) fn render_page<T, S: Serialize>(&self, mut rows: Vec<T>, view: impl Fn(T) -> S) -> Value {
        let has_more = rows.len() as u64 > self.limit;
        rows.truncate(self.limit as usize);
        let items: Vec<Value> = rows.into_iter().map(|row| json!(view(row))).collect();
        let fitting = count_fitting(&items, MAX_PAGE_BYTES);
        let has_more = has_more || fitting < items.len();
        let items = &items[..fitting];
        let next = has_more.then(|| self.offset + items.len() as u64);
        json!({ "count": items.len(), "has_more": has_more, "next_offset": next, "items": items })
    }

    /// The same for a list that is completely in memory.
    pub(super) fn render_slice<T, S: Serialize>(&self, rows: Vec<T>, view: impl Fn(T) -> S) -> Value {
        let rows = rows.into_iter().skip(self.offset as usize).take(self.limit as usize + 1).collect();
        self.render_page(rows, view)
    }
}

/// Returns how many items fit into an answer; at least one.
pub(super) fn count_fitting(items: &[Value], most: usize) -> usize {
    let mut bytes = 0;
    let fits = |item: &&Value| {
        bytes += item.to_string().len();
        bytes <= most
    };
    items.iter().take_while(fits).count().max(1).min(items.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_reports_whether_more_items_follow() {
        let page = PageRange::new(Some(1), Some(2));
        let shown = page.render_slice(vec![1, 2, 3, 4], |n| n);
        assert_eq!(shown, json!({"count": 2, "has_more": true, "next_offset": 3, "items": [2, 3]}));
        let last = PageRange::new(Some(3), Some(2)).render_slice(vec![1, 2, 3, 4], |n| n);
        assert_eq!(last, json!({"count": 1, "has_more": false, "next_offset": null, "items": [4]}));
        assert_eq!(PageRange::new(None, Some(1_000_000)).limit, MAX_PAGE_LENGTH);
    }

    #[test]
    fn page_size_is_limited_for_long_items() {
        let long = "x".repeat(MAX_PAGE_BYTES / 4);
        let shown = PageRange::new(None, None).render_slice(vec![&long; 9], |text| text);
        assert_eq!((&shown["count"], &shown["next_offset"]), (&json!(3), &json!(3)));
        assert!(shown.to_string().len() <= MAX_PAGE_BYTES + 200);
        let longer = long.repeat(9);
        let shown = PageRange::new(Some(4), None).render_slice(vec![&longer; 9], |text| text);
        assert_eq!((&shown["count"], &shown["next_offset"]), (&json!(1), &json!(5)), "it goes on");
        assert_eq!(count_fitting(&[], 10), 0);
    }
}
