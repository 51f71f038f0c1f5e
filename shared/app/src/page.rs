//! The end of a page.

/// Cuts a list at the end of a page. Returns the last item of the page if there are more: the next page begins there.
/// The caller has read one item more than `limit`.
pub fn cut<T: Clone>(items: &mut Vec<T>, limit: usize) -> Option<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    items.last().filter(|_| more).cloned()
}
