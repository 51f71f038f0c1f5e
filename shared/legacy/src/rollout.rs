//! The users whom an application serves from here while it moves from another system: a share of all, and single users.

use tidemark::{LegacySettings, domain::UserId};

/// Whether the user is on, which depends on the id alone. The user is then on with each greater share.
pub fn is_on(settings: &LegacySettings, user: UserId) -> bool {
    user.percentile() < settings.rollout_percent || settings.rollout_users.contains(&user)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u64) -> UserId {
        UserId::new(id).unwrap()
    }

    fn share(rollout_percent: u8) -> LegacySettings {
        LegacySettings { rollout_percent, ..LegacySettings::default() }
    }

    /// Users with dense ids, with ids of a generator that counts in steps, and with sparse ids.
    fn populations() -> [Vec<UserId>; 3] {
        let sparse = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        [
            (1..=20_000).map(user).collect(),
            (1..=20_000).map(|n| user(n << 12)).collect(),
            (1..=20_000).map(sparse).map(user).collect(),
        ]
    }

    #[test]
    fn each_share_has_about_its_number_of_users() {
        for users in populations() {
            for percent in [0, 1, 10, 33, 50, 99, 100] {
                let on = users.iter().filter(|user| is_on(&share(percent), **user)).count() as f64;
                let expected = users.len() as f64 * percent as f64 / 100.0;
                // Five standard deviations of a binomial distribution; none at 0 % and at 100 %.
                let tolerance = 5.0 * (expected * (1.0 - percent as f64 / 100.0)).sqrt();
                assert!((on - expected).abs() <= tolerance, "{percent} %: {on} of {}", users.len());
            }
        }
    }

    #[test]
    fn who_is_on_stays_on_when_the_share_grows() {
        for users in populations() {
            for percent in 0..100 {
                let (small, large) = (share(percent), share(percent + 1));
                assert!(users.iter().all(|user| !is_on(&small, *user) || is_on(&large, *user)), "{percent} %");
            }
        }
    }

    /// Applications and this system must agree for ever: a changed hash would move users between two systems.
    #[test]
    fn the_hash_is_exactly_this() {
        let percentiles = [1, 2, 7, 1_042, u64::MAX].map(|id| user(id).percentile());
        assert_eq!(percentiles, [6, 22, 48, 32, 94]);
    }

    #[test]
    fn listed_users_are_on_with_any_share() {
        let listed = LegacySettings { rollout_users: [user(7), user(u64::MAX)].into(), ..LegacySettings::default() };
        let on: Vec<u64> = (1..=1_000).filter(|id| is_on(&listed, user(*id))).collect();
        assert_eq!((on, is_on(&listed, user(u64::MAX))), (vec![7], true));
    }
}
