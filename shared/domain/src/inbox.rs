//! The inbox: groups of acts of other users that concern a user.
//!
//! A group is derived from the facts of its acts. The count, the list and the unread count come from one look at all
//! groups of a user, so they agree ([`Inbox::shown`]).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{ParseIdError, PostId, Seq, Timestamp, UserId, ids::parse_decimal};

/// The newest users of a group that it shows.
pub const SHOWN_USERS: usize = 3;

/// The most groups of a user.
pub const MOST_GROUPS: usize = 1_000;

/// The most users whom one group leaves out because of a block. Further ones may be in its count.
pub const MOST_APART: usize = 1_000;

const DAY_MS: u64 = 24 * 3600 * 1000;

/// How long a group lasts after its latest act.
pub const GROUP_LIFETIME_MS: u64 = 90 * DAY_MS;

/// The kind of the acts of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = InboxKind))]
#[serde(rename_all = "lowercase")]
pub enum GroupKind {
    /// Users follow the user. A group for each UTC day.
    Follow,
    /// Users ask to follow the user.
    Request,
    /// Authors have accepted the user's requests, and the follows stand. A group for each UTC day.
    Accepted,
    Like,
    Favorite,
    Repost,
    Quote,
    Comment,
}

impl GroupKind {
    pub const ALL: [Self; 8] =
        [Self::Follow, Self::Request, Self::Accepted, Self::Like, Self::Favorite, Self::Repost, Self::Quote, Self::Comment];

    /// The kinds with a group for each post.
    pub const OF_POSTS: [Self; 5] = [Self::Like, Self::Favorite, Self::Repost, Self::Quote, Self::Comment];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Follow => "follow",
            Self::Request => "request",
            Self::Accepted => "accepted",
            Self::Like => "like",
            Self::Favorite => "favorite",
            Self::Repost => "repost",
            Self::Quote => "quote",
            Self::Comment => "comment",
        }
    }
}

/// The id of a group within its user: `like-7`, `follow-20784` (days since 1970), `request`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId {
    kind: GroupKind,
    /// The day, or the number of the post. Zero for requests.
    number: u64,
}

impl GroupId {
    pub const REQUEST: Self = Self { kind: GroupKind::Request, number: 0 };

    /// The group of the follows that began on the day of this time.
    pub fn follow(since: Timestamp) -> Self {
        Self { kind: GroupKind::Follow, number: since.ms() / DAY_MS }
    }

    /// The group of the requests that were accepted on the day of this time.
    pub fn accepted(since: Timestamp) -> Self {
        Self { kind: GroupKind::Accepted, number: since.ms() / DAY_MS }
    }

    /// The group of one of the kinds [`GroupKind::OF_POSTS`].
    pub fn of_post(kind: GroupKind, seq: Seq) -> Self {
        Self { kind, number: seq }
    }

    pub fn kind(self) -> GroupKind {
        self.kind
    }

    /// The number of the post, if the group is of a post.
    pub fn seq(self) -> Option<Seq> {
        GroupKind::OF_POSTS.contains(&self.kind).then_some(self.number)
    }

    /// The post of the user, if the group is of one.
    pub fn post(self, user: UserId) -> Option<PostId> {
        self.seq().map(|seq| PostId::new(user, seq))
    }

    /// The first moment of the day, and that of the next day.
    pub fn day(self) -> [Timestamp; 2] {
        [self.number, self.number.saturating_add(1)].map(|day| Timestamp::from_ms(day.saturating_mul(DAY_MS)))
    }

    /// Returns whether the group is of a day whose acts are all too old for an inbox.
    pub fn is_over(self, now: Timestamp) -> bool {
        matches!(self.kind, GroupKind::Follow | GroupKind::Accepted) && !lasts(self.day()[1], now)
    }

    /// Kind and number, for a cursor.
    pub fn to_numbers(self) -> [u64; 2] {
        [GroupKind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or_default() as u64, self.number]
    }

    pub fn from_numbers([kind, number]: [u64; 2]) -> Option<Self> {
        Some(Self { kind: *GroupKind::ALL.get(usize::try_from(kind).ok()?)?, number })
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            GroupKind::Request => f.write_str(self.kind.name()),
            kind => write!(f, "{}-{}", kind.name(), self.number),
        }
    }
}

impl FromStr for GroupId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let error = ParseIdError("must be the id of a group of the inbox");
        let (name, number) = text.split_once('-').map_or((text, None), |(name, number)| (name, Some(number)));
        let kind = *GroupKind::ALL.iter().find(|kind| kind.name() == name).ok_or(error.clone())?;
        let number = match (kind, number) {
            (GroupKind::Request, None) => Some(0),
            (GroupKind::Request, Some(_)) | (_, None) => None,
            (_, Some(number)) => parse_decimal(number),
        };
        number.map(|number| Self { kind, number }).ok_or(error)
    }
}

impl Serialize for GroupId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GroupId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The acts of a group that stand, without those of users in a block with the group's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acts {
    /// The number of users, at least 1.
    pub count: u64,
    /// The users of the newest acts, at least one and at most [`SHOWN_USERS`].
    pub users: Vec<UserId>,
    pub latest_at: Timestamp,
    /// The newest act of a user who is not muted.
    pub heard_at: Option<Timestamp>,
}

/// A group as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub id: GroupId,
    /// `None` for the remains of a group, which keep when the user has read it.
    pub acts: Option<Acts>,
    pub read_at: Option<Timestamp>,
    /// Grows by one with each derivation that is written.
    pub version: u32,
    /// When the last written derivation had read all acts.
    pub written_at: Timestamp,
    /// The users with an act who are in a block with the group's user.
    pub apart: Vec<UserId>,
    /// The entries of lists that the last derivation read, if they were many. They decide how long the next one waits.
    pub entries: u64,
}

impl Group {
    pub fn new(id: GroupId) -> Self {
        let (version, written_at) = (0, Timestamp::default());
        Self { id, acts: None, read_at: None, version, written_at, apart: Vec::new(), entries: 0 }
    }

    /// Returns whether the other one was derived from the same acts.
    pub fn has_same_acts(&self, other: &Self) -> bool {
        (&self.acts, &self.apart) == (&other.acts, &other.apart)
    }

    /// Returns whether an act of a user who is not muted is later than both reads.
    fn is_unread(&self, read_before: Timestamp) -> bool {
        let heard_at = self.acts.as_ref().and_then(|acts| acts.heard_at);
        heard_at.is_some_and(|heard_at| heard_at > read_before && self.read_at.is_none_or(|read_at| heard_at > read_at))
    }

    /// Returns the place of the group in the inbox; `None` without acts.
    pub fn place(&self) -> Option<GroupPlace> {
        self.acts.as_ref().map(|acts| GroupPlace { at: acts.latest_at, id: self.id })
    }
}

/// The place of a group in an inbox, which is in descending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupPlace {
    /// The newest act of the group.
    pub at: Timestamp,
    pub id: GroupId,
}

/// All groups of a user, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inbox {
    pub groups: Vec<Group>,
    /// The user has read all acts up to this time.
    pub read_before: Timestamp,
}

/// A group that the inbox shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownGroup {
    pub id: GroupId,
    pub acts: Acts,
    pub unread: bool,
}

impl ShownGroup {
    pub fn place(&self) -> GroupPlace {
        GroupPlace { at: self.acts.latest_at, id: self.id }
    }
}

impl Inbox {
    /// Returns the groups that the user sees at this time, newest act first. Every list and count of an inbox is made
    /// of them.
    pub fn shown(self, now: Timestamp) -> Vec<ShownGroup> {
        let Self { groups, read_before } = self;
        let shown = groups.into_iter().filter_map(|group| {
            let unread = group.is_unread(read_before);
            Some(ShownGroup { id: group.id, acts: group.acts?, unread })
        });
        let mut shown: Vec<ShownGroup> = shown.filter(|group| lasts(group.acts.latest_at, now)).collect();
        shown.sort_unstable_by_key(|group| std::cmp::Reverse(group.place()));
        shown.truncate(MOST_GROUPS);
        shown
    }

    /// Returns the groups that are beyond [`MOST_GROUPS`] or too old.
    pub fn beyond(&self, now: Timestamp) -> Vec<&Group> {
        let mut groups: Vec<&Group> = self.groups.iter().filter(|group| group.acts.is_some()).collect();
        groups.sort_unstable_by_key(|group| std::cmp::Reverse(group.place()));
        let is_left = |(number, group): &(usize, &Group)| {
            *number >= MOST_GROUPS || group.place().is_some_and(|place| !lasts(place.at, now))
        };
        groups.into_iter().enumerate().filter(is_left).map(|(_, group)| group).collect()
    }

    /// Returns the groups that are to be stored with less: those of [`Self::beyond`] without their acts, and remains
    /// without the time at which the user has read them, if they are beyond [`MOST_GROUPS`] or the user has read the
    /// whole inbox later. A group without both is to be deleted.
    pub fn trimmed(&self, now: Timestamp) -> Vec<(&Group, Group)> {
        let beyond = self.beyond(now);
        let mut remains: Vec<&Group> = self.groups.iter().filter(|group| group.acts.is_none()).chain(beyond).collect();
        remains.sort_unstable_by_key(|group| std::cmp::Reverse((group.read_at, group.id)));
        let trimmed = |(number, group): (usize, &'_ Group)| {
            let read_at = group.read_at.filter(|at| number < MOST_GROUPS && *at > self.read_before);
            Group { acts: None, apart: Vec::new(), read_at, entries: 0, ..group.clone() }
        };
        let trimmed = remains.into_iter().enumerate().map(|(number, group)| (group, trimmed((number, group))));
        trimmed.filter(|(group, trimmed)| *group != trimmed).collect()
    }
}

/// Returns whether a group with this latest act is still in the inbox.
pub fn lasts(latest_at: Timestamp, now: Timestamp) -> bool {
    latest_at.plus_ms(GROUP_LIFETIME_MS) > now
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 200 * DAY_MS;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    fn group(seq: Seq, latest: u64, heard: Option<u64>, read: Option<u64>) -> Group {
        let acts = Acts { count: 1, users: vec![UserId::MIN], latest_at: at(latest), heard_at: heard.map(at) };
        let id = GroupId::of_post(GroupKind::Like, seq);
        Group { acts: Some(acts), read_at: read.map(at), ..Group::new(id) }
    }

    #[test]
    fn ids_are_parsed_in_their_only_form() {
        let day = at(20_784 * DAY_MS + 5);
        let ids = [
            (GroupId::follow(day), "follow-20784"),
            (GroupId::REQUEST, "request"),
            (GroupId::accepted(day), "accepted-20784"),
            (GroupId::of_post(GroupKind::Comment, 7), "comment-7"),
        ];
        for (id, text) in ids {
            assert_eq!((id.to_string().as_str(), text.parse()), (text, Ok(id)));
            assert_eq!(GroupId::from_numbers(id.to_numbers()), Some(id));
        }
        for text in ["", "like", "like-", "like-07", "like-x", "likes-7", "request-0", "-7", "like-7-7"] {
            assert!(text.parse::<GroupId>().is_err(), "{text}");
        }
        assert_eq!(GroupId::from_numbers([8, 1]), None);
        assert_eq!(GroupId::follow(day).day(), [at(20_784 * DAY_MS), at(20_785 * DAY_MS)]);
        assert_eq!(GroupId::REQUEST.post(UserId::MIN), None);
    }

    #[test]
    fn a_group_is_unread_by_the_newest_act_of_a_user_who_is_not_muted() {
        let unread = |heard, read, before| group(1, NOW, heard, read).is_unread(at(before));
        assert!(unread(Some(5), None, 0) && unread(Some(5), Some(4), 4));
        assert!(!unread(Some(5), Some(5), 0), "read up to that act");
        assert!(!unread(Some(5), None, 5) && !unread(Some(5), Some(4), 6));
        assert!(!unread(None, None, 0), "all of its users are muted");
        assert!(!Group { acts: None, ..group(1, NOW, Some(5), None) }.is_unread(at(0)));
    }

    #[test]
    fn the_inbox_shows_the_newest_groups_of_the_last_days() {
        let old = NOW - GROUP_LIFETIME_MS;
        let mut groups: Vec<Group> = (1..=MOST_GROUPS as u64 + 2).map(|seq| group(seq, NOW - seq, Some(1), None)).collect();
        let inbox = Inbox { groups: groups.clone(), read_before: at(0) };
        assert_eq!(inbox.beyond(at(NOW)).len(), 2);
        let shown = inbox.shown(at(NOW));
        assert_eq!((shown.len(), shown[0].id.seq(), shown[999].id.seq()), (MOST_GROUPS, Some(1), Some(1_000)));
        groups.truncate(1);
        groups.extend([
            group(2, old, Some(1), None),
            group(3, old + 1, Some(1), None),
            Group { acts: None, ..groups[0].clone() },
        ]);
        let inbox = Inbox { groups, read_before: at(0) };
        assert_eq!(inbox.beyond(at(NOW)).iter().map(|group| group.id.seq()).collect::<Vec<_>>(), [Some(2)]);
        assert_eq!(inbox.shown(at(NOW)).iter().map(|group| group.id.seq()).collect::<Vec<_>>(), [Some(1), Some(3)]);
    }

    #[test]
    fn a_group_is_over_when_no_act_of_its_day_lasts() {
        let last = at(NOW - GROUP_LIFETIME_MS - 1);
        let [of_day, of_next] = [GroupId::follow(last), GroupId::accepted(last.plus_ms(1))];
        assert_eq!([of_day, of_next].map(|id| id.is_over(at(NOW))), [true, false]);
        assert!(!of_day.is_over(at(NOW - 1)), "a moment earlier its last act lasted");
        assert!(!GroupId::REQUEST.is_over(at(NOW)) && !GroupId::of_post(GroupKind::Like, 1).is_over(at(NOW)));
    }

    #[test]
    fn a_trimmed_group_keeps_when_it_was_read() {
        let old = NOW - GROUP_LIFETIME_MS;
        let remains = |seq, read| Group { acts: None, ..group(seq, NOW, None, Some(read)) };
        let groups = vec![
            group(1, old, None, Some(7)),
            group(2, old, None, Some(5)),
            group(3, NOW, None, Some(7)),
            remains(4, 7),
            remains(5, 5),
        ];
        let inbox = Inbox { groups, read_before: at(5) };
        let trimmed = inbox.trimmed(at(NOW));
        let kept =
            |(_, group): &(&Group, Group)| (group.id.seq().unwrap(), group.acts.is_some(), group.read_at.map(Timestamp::ms));
        assert_eq!(trimmed.iter().map(kept).collect::<Vec<_>>(), [(1, false, Some(7)), (5, false, None), (2, false, None)]);
        let groups = (0..MOST_GROUPS as u64 + 2).map(|seq| remains(seq, 6 + seq)).collect();
        let inbox = Inbox { groups, read_before: at(5) };
        assert_eq!(inbox.trimmed(at(NOW)).iter().map(kept).collect::<Vec<_>>(), [(1, false, None), (0, false, None)]);
    }
}
