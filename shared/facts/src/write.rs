//! Writes of single items, alone or in a transaction, and queries. Their expressions are made of [`Attribute`]s.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::{
    error::{BuildError, ProvideErrorMetadata, SdkError},
    operation::{
        query::{QueryOutput, builders::QueryFluentBuilder},
        transact_write_items::TransactWriteItemsError,
    },
    types::{
        AttributeValue, ConditionCheck, Delete, Put, ReturnConsumedCapacity, ReturnValue, Select, TransactWriteItem, Update,
    },
};
use futures::FutureExt;
use tidemark_domain::SeqSet;

use super::{
    Facts, Result, attempts,
    item::{Attribute, Item, bits, number, string},
    unavailable,
};

/// The reason why a write or a transaction was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelled {
    /// The conditions of these writes failed. Writes are numbered by their index in the transaction.
    Conditions(Vec<usize>),
    /// Other requests held these items, or their partitions were at their limit. A repetition may succeed.
    Conflict(Vec<usize>),
}

/// A condition on attributes of one item.
#[derive(Debug, Clone)]
pub struct Condition(Vec<Clause>);

/// A part of an expression. In `text`, `#` stands for the attribute and each `?` for one of the values.
#[derive(Debug, Clone)]
struct Clause {
    text: &'static str,
    attribute: Attribute,
    values: Vec<AttributeValue>,
}

impl Condition {
    fn new(text: &'static str, attribute: Attribute, values: impl Into<Vec<AttributeValue>>) -> Self {
        Self(vec![Clause { text, attribute, values: values.into() }])
    }

    /// Holds if one of the two does.
    pub fn or(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

pub fn is(attribute: Attribute, value: AttributeValue) -> Condition {
    Condition::new("# = ?", attribute, [value])
}

pub(crate) fn is_not(attribute: Attribute, value: AttributeValue) -> Condition {
    Condition::new("# <> ?", attribute, [value])
}

/// A set has this element.
pub(crate) fn contains(attribute: Attribute, element: AttributeValue) -> Condition {
    Condition::new("contains(#, ?)", attribute, [element])
}

pub fn below(attribute: Attribute, value: AttributeValue) -> Condition {
    Condition::new("# < ?", attribute, [value])
}

pub fn at_most(attribute: Attribute, value: AttributeValue) -> Condition {
    Condition::new("# <= ?", attribute, [value])
}

pub fn between(attribute: Attribute, first: AttributeValue, last: AttributeValue) -> Condition {
    Condition::new("# BETWEEN ? AND ?", attribute, [first, last])
}

pub fn present(attribute: Attribute) -> Condition {
    Condition::new("attribute_exists(#)", attribute, [])
}

pub fn absent(attribute: Attribute) -> Condition {
    Condition::new("attribute_not_exists(#)", attribute, [])
}

/// `kind` is a type of DynamoDB: `N` or `S`.
pub fn is_not_of_type(attribute: Attribute, kind: &str) -> Condition {
    Condition::new("NOT attribute_type(#, ?)", attribute, [string(kind)])
}

/// The attribute has this value, or is absent.
pub fn still(attribute: Attribute, known: Option<AttributeValue>) -> Condition {
    known.map_or_else(|| absent(attribute), |value| is(attribute, value))
}

/// The same for a number that is not stored while it is zero, as the version of an item.
pub fn still_number(attribute: Attribute, known: impl Into<u64>) -> Condition {
    let known = known.into();
    still(attribute, (known > 0).then(|| number(known)))
}

/// The same for a set that is not stored while it is empty.
pub fn still_set(attribute: Attribute, known: &SeqSet) -> Condition {
    still(attribute, (!known.is_empty()).then(|| bits(known)))
}

/// The attribute has not changed since the item was read as `seen`.
pub fn unchanged(attribute: Attribute, seen: Option<&Item>) -> Condition {
    still(attribute, seen.and_then(|item| attribute.of(item)).cloned())
}

/// The names and values of a request. Every name gets a placeholder, because DynamoDB reserves many words. A map is
/// absent while it would be empty, which DynamoDB refuses.
#[derive(Debug, Clone, Default)]
struct Placeholders {
    names: Option<HashMap<String, String>>,
    values: Option<HashMap<String, AttributeValue>>,
    /// Begins the number of a value, so that a filter shares none with the key condition of its query.
    prefix: &'static str,
}

impl Placeholders {
    fn name(&mut self, attribute: Attribute) -> String {
        let place = format!("#{}", attribute.name());
        self.names.get_or_insert_default().insert(place.clone(), attribute.name().to_owned());
        place
    }

    fn fill(&mut self, Clause { text, attribute, values }: Clause) -> String {
        let text = text.replace('#', &self.name(attribute));
        values.into_iter().fold(text, |text, value| {
            let values = self.values.get_or_insert_default();
            let place = format!(":v{}{}", self.prefix, values.len());
            let text = text.replacen('?', &place, 1);
            values.insert(place, value);
            text
        })
    }

    fn condition(&mut self, Condition(any): Condition) -> String {
        let any: Vec<String> = any.into_iter().map(|clause| self.fill(clause)).collect();
        if any.len() == 1 { any.concat() } else { format!("({})", any.join(" OR ")) }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Put,
    Update,
    Delete,
    Check,
}

/// A write of one item, or only a check of its conditions, all of which must hold.
#[derive(Debug, Clone)]
pub struct Write {
    kind: Kind,
    table: String,
    /// The whole item for a put, otherwise its key.
    item: Item,
    /// The clauses of the update, by keyword, such as `SET`.
    changes: BTreeMap<&'static str, Vec<String>>,
    condition: Option<String>,
    places: Placeholders,
}

/// Sets what the requests and actions of all kinds of writes have in common.
macro_rules! complete {
    ($request:expr, $write:ident) => {
        $request
            .table_name($write.table)
            .set_condition_expression($write.condition)
            .set_expression_attribute_names($write.places.names)
            .set_expression_attribute_values($write.places.values)
    };
}

impl Write {
    fn new(kind: Kind, table: &str, item: Item) -> Self {
        let (table, places) = (table.to_owned(), Placeholders::default());
        Self { kind, table, item, changes: BTreeMap::new(), condition: None, places }
    }

    pub fn put(table: &str, item: Item) -> Self {
        Self::new(Kind::Put, table, item)
    }

    pub fn update(table: &str, key: Item) -> Self {
        Self::new(Kind::Update, table, key)
    }

    pub fn delete(table: &str, key: Item) -> Self {
        Self::new(Kind::Delete, table, key)
    }

    pub fn check(table: &str, key: Item) -> Self {
        Self::new(Kind::Check, table, key)
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    fn change(mut self, keyword: &'static str, text: &'static str, attribute: Attribute, value: Option<AttributeValue>) -> Self {
        let clause = self.places.fill(Clause { text, attribute, values: value.into_iter().collect() });
        self.changes.entry(keyword).or_default().push(clause);
        self
    }

    pub fn set(self, attribute: Attribute, value: AttributeValue) -> Self {
        self.change("SET", "# = ?", attribute, Some(value))
    }

    pub fn set_if_absent(self, attribute: Attribute, value: AttributeValue) -> Self {
        self.change("SET", "# = if_not_exists(#, ?)", attribute, Some(value))
    }

    /// Adds to a number. An absent one counts as zero.
    pub fn add(self, attribute: Attribute, change: i64) -> Self {
        self.insert(attribute, AttributeValue::N(change.to_string()))
    }

    pub(crate) fn insert(self, attribute: Attribute, elements: AttributeValue) -> Self {
        self.change("ADD", "# ?", attribute, Some(elements))
    }

    /// Puts elements before those of a list. An absent list counts as empty.
    pub(crate) fn prepend(mut self, attribute: Attribute, elements: AttributeValue) -> Self {
        let values = vec![elements, AttributeValue::L(Vec::new())];
        let clause = self.places.fill(Clause { text: "# = list_append(?, if_not_exists(#, ?))", attribute, values });
        self.changes.entry("SET").or_default().push(clause);
        self
    }

    pub(crate) fn take(self, attribute: Attribute, elements: AttributeValue) -> Self {
        self.change("DELETE", "# ?", attribute, Some(elements))
    }

    pub fn remove<const N: usize>(self, attributes: [Attribute; N]) -> Self {
        attributes.into_iter().fold(self, |write, attribute| write.change("REMOVE", "#", attribute, None))
    }

    pub fn when(mut self, condition: Condition) -> Self {
        let condition = self.places.condition(condition);
        self.condition = Some(self.condition.map_or(condition.clone(), |before| format!("{before} AND {condition}")));
        self
    }

    pub(crate) fn update_expression(&self) -> String {
        let changes = self.changes.iter().map(|(keyword, clauses)| format!("{keyword} {}", clauses.join(", ")));
        changes.collect::<Vec<String>>().join(" ")
    }

    fn into_action(self) -> Result<TransactWriteItem, BuildError> {
        let (write, action) = (self, TransactWriteItem::builder());
        let action = match write.kind {
            Kind::Put => action.put(complete!(Put::builder(), write).set_item(Some(write.item)).build()?),
            Kind::Update => {
                let update = Update::builder().update_expression(write.update_expression());
                action.update(complete!(update, write).set_key(Some(write.item)).build()?)
            }
            Kind::Delete => action.delete(complete!(Delete::builder(), write).set_key(Some(write.item)).build()?),
            Kind::Check => action.condition_check(complete!(ConditionCheck::builder(), write).set_key(Some(write.item)).build()?),
        };
        Ok(action.build())
    }
}

impl Facts {
    /// Sends a write, again while a transaction holds its item or its partition is at its limit. Returns false if a
    /// condition did not hold.
    pub async fn send(&self, operation: &'static str, write: Write) -> Result<bool> {
        Ok(self.send_returning(operation, write, ReturnValue::None).await?.is_some())
    }

    /// The same for an update. Returns the item after it, or `None` if a condition did not hold.
    pub async fn updated(&self, operation: &'static str, update: Write) -> Result<Option<Item>> {
        self.send_returning(operation, update, ReturnValue::AllNew).await
    }

    /// The same. Returns the attributes that `returned` asks for, or `None` if a condition did not hold.
    pub(crate) async fn send_returning(
        &self,
        operation: &'static str,
        write: Write,
        returned: ReturnValue,
    ) -> Result<Option<Item>> {
        let mut attempts = attempts(operation);
        loop {
            attempts.next().await?;
            match self.send_once(operation, write.clone(), returned.clone()).await? {
                Ok(attributes) => return Ok(Some(attributes.unwrap_or_default())),
                Err(Cancelled::Conditions(_)) => return Ok(None),
                Err(Cancelled::Conflict(_)) => (),
            }
        }
    }

    /// The same, once: the inner error may be that the item is held.
    pub(crate) async fn send_once(
        &self,
        operation: &'static str,
        write: Write,
        returned: ReturnValue,
    ) -> Result<Result<Option<Item>, Cancelled>> {
        macro_rules! sent {
            ($request:expr) => {
                match $request.return_values(returned).send().boxed().await {
                    Ok(done) => Ok(Ok(done.attributes)),
                    Err(error) => refusal(operation, error),
                }
            };
        }
        let client = &self.client;
        match write.kind {
            Kind::Put => sent!(complete!(client.put_item(), write).set_item(Some(write.item))),
            Kind::Update => {
                let update = client.update_item().update_expression(write.update_expression());
                sent!(complete!(update, write).set_key(Some(write.item)))
            }
            Kind::Delete => sent!(complete!(client.delete_item(), write).set_key(Some(write.item))),
            Kind::Check => Ok(self.transact(operation, vec![write]).await?.map(|()| None)),
        }
    }

    /// Sends a transaction, again while others hold its items. Returns whether its conditions held.
    pub async fn transact_when_free(&self, operation: &'static str, writes: Vec<Write>) -> Result<bool> {
        let mut attempts = attempts(operation);
        loop {
            attempts.next().await?;
            match self.transact(operation, writes.clone()).await? {
                Ok(()) => return Ok(true),
                Err(Cancelled::Conditions(_)) => return Ok(false),
                Err(Cancelled::Conflict(_)) => (),
            }
        }
    }

    /// Sends one write alone, several as a transaction. False if a condition did not hold, or an item was held.
    pub async fn send_all(&self, operation: &'static str, writes: Vec<Write>) -> Result<bool> {
        match <[Write; 1]>::try_from(writes) {
            Ok([write]) => self.send(operation, write).await,
            Err(writes) => Ok(self.transact(operation, writes).await?.is_ok()),
        }
    }

    /// Sends a transaction. The inner error is the reason for its cancellation.
    ///
    /// The SDK repeats a request with the same `ClientRequestToken`, and DynamoDB returns the first outcome to a
    /// repetition. After the SDK's last attempt, the outcome may still be unknown: the transaction may be in progress
    /// (`TransactionInProgressException`), or done without a response. A caller that tries again with a new transaction
    /// must compare the stored items with those that it was writing.
    pub async fn transact(&self, operation: &'static str, writes: Vec<Write>) -> Result<Result<(), Cancelled>> {
        let actions: Result<Vec<TransactWriteItem>, BuildError> = writes.into_iter().map(Write::into_action).collect();
        let actions = actions.map_err(|error| unavailable(operation, error))?;
        let error = match self.client.transact_write_items().set_transact_items(Some(actions)).send().boxed().await {
            Ok(_) => return Ok(Ok(())),
            Err(error) => error,
        };
        let Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) = error.as_service_error() else {
            return Err(unavailable(operation, error));
        };
        let codes: Vec<&str> = cancelled.cancellation_reasons().iter().map(|reason| reason.code().unwrap_or("None")).collect();
        let writes = |wanted: &[&str]| -> Vec<usize> {
            codes.iter().enumerate().filter(|(_, code)| wanted.contains(code)).map(|(index, _)| index).collect()
        };
        let failed = writes(&["ConditionalCheckFailed"]);
        let held = writes(&["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"]);
        if !failed.is_empty() {
            Ok(Err(Cancelled::Conditions(failed)))
        } else if !held.is_empty() {
            Ok(Err(Cancelled::Conflict(held)))
        } else {
            Err(unavailable(operation, error))
        }
    }

    /// A query of a partition, or of a part of it. The first condition names the partition.
    pub fn query<const N: usize>(&self, table: &str, conditions: [Condition; N]) -> QueryFluentBuilder {
        let mut places = Placeholders::default();
        let conditions = conditions.map(|condition| places.condition(condition));
        let query = self.client.query().table_name(table).key_condition_expression(conditions.join(" AND "));
        let query = query.set_expression_attribute_names(places.names).set_expression_attribute_values(places.values);
        query.return_consumed_capacity(ReturnConsumedCapacity::Total)
    }
}

/// Reduces the results of a query to these attributes.
pub fn only(query: QueryFluentBuilder, attributes: &[Attribute]) -> QueryFluentBuilder {
    let mut places = Placeholders::default();
    let list: Vec<String> = attributes.iter().map(|attribute| places.name(*attribute)).collect();
    let names = places.names.into_iter().flatten();
    names.fold(query.projection_expression(list.join(", ")), |query, (place, name)| query.expression_attribute_names(place, name))
}

/// Reduces the results of a query to items that meet a condition. It does not reduce what the query reads.
pub(crate) fn having(query: QueryFluentBuilder, condition: Condition) -> QueryFluentBuilder {
    let mut places = Placeholders { prefix: "f", ..Placeholders::default() };
    let query = query.filter_expression(places.condition(condition));
    let names = places.names.into_iter().flatten();
    let query = names.fold(query, |query, (place, name)| query.expression_attribute_names(place, name));
    let values = places.values.into_iter().flatten();
    values.fold(query, |query, (place, value)| query.expression_attribute_values(place, value))
}

/// Sends a query, and again for its next page, until there are `most` items or no more.
pub async fn queried(operation: &'static str, query: QueryFluentBuilder, most: usize) -> Result<Vec<Item>> {
    let query = query.set_limit(i32::try_from(most).ok());
    let (mut items, mut pages) = (Vec::new(), Pages::default());
    while items.len() < most
        && let Some(page) = pages.next(operation, &query).await?
    {
        items.extend(page.items.unwrap_or_default());
    }
    items.truncate(most);
    Ok(items)
}

/// Passes each result of a query to `take`. Only one page of them is in memory.
pub(crate) async fn each_queried(
    operation: &'static str,
    query: QueryFluentBuilder,
    mut take: impl FnMut(&Item) -> Result<()>,
) -> Result<()> {
    let mut pages = Pages::default();
    while let Some(page) = pages.next(operation, &query).await? {
        page.items().iter().try_for_each(&mut take)?;
    }
    Ok(())
}

pub async fn count_queried(operation: &'static str, query: QueryFluentBuilder) -> Result<u64> {
    let (query, mut pages, mut count) = (query.select(Select::Count), Pages::default(), 0);
    while let Some(page) = pages.next(operation, &query).await? {
        count += u64::try_from(page.count()).unwrap_or(0);
    }
    Ok(count)
}

/// The pages of a query. In contrast to the SDK's paginator, a page whose partition is at its limit is read again.
#[derive(Default)]
struct Pages {
    after: Option<Item>,
    ended: bool,
}

impl Pages {
    async fn next(&mut self, operation: &'static str, query: &QueryFluentBuilder) -> Result<Option<QueryOutput>> {
        if self.ended {
            return Ok(None);
        }
        let mut attempts = attempts(operation);
        loop {
            attempts.next().await?;
            let page = match query.clone().set_exclusive_start_key(self.after.clone()).send().boxed().await {
                Err(error) if is_throttled(&error) => continue,
                page => page.map_err(|error| unavailable(operation, error))?,
            };
            self.after = page.last_evaluated_key.clone();
            self.ended = self.after.is_none();
            return Ok(Some(page));
        }
    }
}

fn refusal<T, E, R>(operation: &'static str, error: SdkError<E, R>) -> Result<Result<T, Cancelled>>
where
    E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    R: std::fmt::Debug + Send + Sync + 'static,
{
    match error.as_service_error().and_then(ProvideErrorMetadata::code) {
        Some("ConditionalCheckFailedException") => Ok(Err(Cancelled::Conditions(vec![0]))),
        Some("TransactionConflictException") => Ok(Err(Cancelled::Conflict(vec![0]))),
        _ if is_throttled(&error) => Ok(Err(Cancelled::Conflict(vec![0]))),
        _ => Err(unavailable(operation, error)),
    }
}

/// Returns whether the partition of the item, or the table, is at its limit, so that nothing was done.
pub(crate) fn is_throttled<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
    matches!(code, Some("ThrottlingException" | "ProvisionedThroughputExceededException" | "RequestLimitExceeded"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::CounterItem;

    #[test]
    fn every_name_and_value_has_a_placeholder() {
        let key = Item::from([("counter".to_owned(), string("u#1"))]);
        let write = Write::update("table", key)
            .set(CounterItem::count, number(3_u64))
            .set_if_absent(CounterItem::counter, string("c"))
            .add(CounterItem::changes, -1)
            .remove([CounterItem::counter])
            .when(absent(CounterItem::count).or(at_most(CounterItem::count, number(9_u64))))
            .when(still_number(CounterItem::changes, 0_u64));
        assert_eq!(
            write.update_expression(),
            "ADD #changes :v2 REMOVE #counter SET #count = :v0, #counter = if_not_exists(#counter, :v1)"
        );
        assert_eq!(
            write.condition.as_deref(),
            Some("(attribute_not_exists(#count) OR #count <= :v3) AND attribute_not_exists(#changes)")
        );
        let Placeholders { names: Some(names), values: Some(values), .. } = write.places else { panic!() };
        assert_eq!((names["#count"].as_str(), &values[":v2"], values.len()), ("count", &AttributeValue::N("-1".into()), 4));
        let delete = Write::delete("table", Item::new()).into_action().unwrap();
        let delete = delete.delete().unwrap();
        assert_eq!((delete.expression_attribute_names(), delete.expression_attribute_values()), (None, None));
    }
}
