//! Medians and ratios of repeated measurements.

/// The middle value, or the mean of the two middle values. `None` for an empty list.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    Some(if values.len().is_multiple_of(2) { (values[values.len() / 2 - 1] + upper) / 2.0 } else { upper })
}

/// The ratio of `one` to `other`. `None` if `other` is 0.
pub(super) fn ratio(one: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| round(one / other))
}

/// Rounds to two decimals. More would be noise, and two decimals make runs easier to compare.
pub(super) fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_does_not_follow_an_outlier() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([9.0, 1.0, 1_000.0]), Some(9.0));
        assert_eq!(median([4.0, 1.0, 1_000.0, 2.0]), Some(3.0));
    }

    #[test]
    fn a_ratio_has_two_decimals_and_needs_a_divisor() {
        assert_eq!(ratio(10.0, 3.0), Some(3.33));
        assert_eq!(ratio(0.0, 3.0), Some(0.0));
        assert_eq!(ratio(1.0, 0.0), None);
    }
}
