//! The table: what it must be, making it so, and saying what it is.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ProvisionedThroughput,
    ScalarAttributeType, TableDescription as Described, TableStatus, TimeToLiveDescription,
    TimeToLiveSpecification, TimeToLiveStatus,
};
use tollgate_core::{BackendError, ErrorKind};

use crate::client::Client;
use crate::error::{error_kind, of_call};
use crate::record::{EXPIRES_AT, PK};
use crate::url::Target;

/// How a table is paid for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capacity {
    /// By the request: `PAY_PER_REQUEST`.
    #[default]
    OnDemand,
    /// By the hour, so many units a second.
    Provisioned {
        /// Read units.
        read: u32,
        /// Write units.
        write: u32,
    },
}

/// What a table is.
///
/// `Display` is what `tollgate dynamodb describe` prints: one line each, and the problems last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// `ACTIVE`, `CREATING`, ..
    pub status: String,
    /// How it is paid for.
    pub capacity: Capacity,
    /// Its key: attribute and type, the partition key first.
    pub key: Vec<(String, String)>,
    /// The attribute by which items expire, if they do, and the status of that.
    pub time_to_live: Option<(String, String)>,
    /// About how many items it has; up to six hours old.
    pub items: u64,
    /// About how large it is, in bytes.
    pub bytes: u64,
    /// What is wrong with it, in a sentence each. None: it can be used.
    pub problems: Vec<String>,
}

impl fmt::Display for TableInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table     {}", self.name)?;
        writeln!(f, "status    {}", self.status)?;
        match self.capacity {
            Capacity::OnDemand => writeln!(f, "capacity  on demand")?,
            Capacity::Provisioned { read, write } => {
                writeln!(
                    f,
                    "capacity  provisioned, {read} read and {write} write units"
                )?;
            }
        }
        let key = self
            .key
            .iter()
            .map(|(name, kind)| format!("{name} ({kind})"));
        writeln!(f, "key       {}", key.collect::<Vec<_>>().join(", "))?;
        match &self.time_to_live {
            Some((attribute, status)) => writeln!(f, "expiry    {attribute}, {status}")?,
            None => writeln!(f, "expiry    off")?,
        }
        write!(f, "items     about {} ({} bytes)", self.items, self.bytes)?;
        for problem in &self.problems {
            write!(f, "\nproblem   {problem}")?;
        }
        Ok(())
    }
}

/// What keeps a table from being used, or may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// It has to be changed.
    Wrong(String),
    /// It has to be waited for.
    NotReady(String),
    /// It cannot be seen.
    Unknown(String),
}

/// Creates the table of a URL, or finds it, and waits until it can be used: its key `pk` (a
/// string), expiry by `expires_at`. Safe to run again, and from several places at once.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate_dynamodb::{Capacity, create_table};
///
/// # async fn example() -> Result<(), tollgate_core::BackendError> {
/// let url = "dynamodb://limits?region=eu-west-1";
/// let table = create_table(url, Capacity::OnDemand, Duration::from_secs(60)).await?;
/// assert_eq!(table.problems, [""; 0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Config`](ErrorKind::Config) for a URL that cannot be used, or a table that is there with another
/// key or another expiry: it is left as it is. [`Timeout`](ErrorKind::Timeout) if it does not
/// become usable within `limit`. What keeps the service from answering.
pub async fn create_table(
    url: &str,
    capacity: Capacity,
    limit: Duration,
) -> Result<TableInfo, BackendError> {
    let create = async {
        let client = Client::new(&Target::parse(url)?, limit).await?;
        create(&client, capacity).await
    };
    bounded(limit, create).await
}

/// Looks at the table of a URL.
///
/// # Errors
/// [`Config`](ErrorKind::Config) for a URL that cannot be used, or if there is no such table; what
/// keeps the service from answering within `limit`.
pub async fn describe_table(url: &str, limit: Duration) -> Result<TableInfo, BackendError> {
    let describe = async {
        let client = Client::new(&Target::parse(url)?, limit).await?;
        inspect(&client).await.map(|(info, _)| info)
    };
    bounded(limit, describe).await
}

async fn bounded<T: Send>(
    limit: Duration,
    work: impl Future<Output = Result<T, BackendError>> + Send,
) -> Result<T, BackendError> {
    let done = tokio::time::timeout(limit, work).await;
    done.unwrap_or_else(|_| {
        let context = format!("the table could not be used within {limit:?}");
        Err(BackendError::new(ErrorKind::Timeout, context))
    })
}

async fn create(client: &Client, capacity: Capacity) -> Result<TableInfo, BackendError> {
    let built = "every required field of it is set";
    let key = KeySchemaElement::builder()
        .attribute_name(PK)
        .key_type(KeyType::Hash);
    let attribute = AttributeDefinition::builder()
        .attribute_name(PK)
        .attribute_type(ScalarAttributeType::S);
    let call = client
        .sdk
        .create_table()
        .table_name(&client.table)
        .key_schema(key.build().expect(built))
        .attribute_definitions(attribute.build().expect(built));
    let call = match capacity {
        Capacity::OnDemand => call.billing_mode(BillingMode::PayPerRequest),
        Capacity::Provisioned { read, write } => {
            let units = ProvisionedThroughput::builder()
                .read_capacity_units(read.into())
                .write_capacity_units(write.into());
            call.billing_mode(BillingMode::Provisioned)
                .provisioned_throughput(units.build().expect(built))
        }
    };
    match call.send().await {
        Ok(_) => {}
        // It is there already, or somebody else creates it at this moment.
        Err(error) if error.code() == Some("ResourceInUseException") => {}
        Err(error) => return Err(of_call(error, &client.table)),
    }
    let mut asked = false;
    let mut pause = Duration::from_millis(50);
    loop {
        // A table that was created just now may not be seen everywhere yet.
        match inspect(client).await {
            Ok((info, problems)) => {
                let off = info.time_to_live.is_none();
                let active = info.status == TableStatus::Active.as_str();
                let waiting = problems.iter().any(|p| matches!(p, Problem::NotReady(_)));
                if active && off && !asked {
                    asked = true;
                    expire(client).await?;
                    continue;
                }
                let wrong: Vec<_> = problems
                    .iter()
                    .filter_map(|problem| match problem {
                        Problem::Wrong(text) if !(waiting || off && asked) => Some(text.as_str()),
                        _ => None,
                    })
                    .collect();
                if !wrong.is_empty() {
                    return Err(BackendError::new(ErrorKind::Config, wrong.join("; ")));
                }
                if active && !off && !waiting {
                    return Ok(info);
                }
            }
            Err(error) if error.kind() == ErrorKind::Config => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

/// Turns expiry on; that somebody else just did is as good.
async fn expire(client: &Client) -> Result<(), BackendError> {
    let expiry = TimeToLiveSpecification::builder()
        .enabled(true)
        .attribute_name(EXPIRES_AT);
    let call = client
        .sdk
        .update_time_to_live()
        .table_name(&client.table)
        .time_to_live_specification(expiry.build().expect("every required field of it is set"));
    match call.send().await {
        Ok(_) => Ok(()),
        Err(error)
            if error.code() == Some("ValidationException")
                && error
                    .message()
                    .is_some_and(|text| text.contains("already enabled")) =>
        {
            Ok(())
        }
        Err(error) => Err(of_call(error, &client.table)),
    }
}

/// What the table is, and what is wrong with it.
pub(crate) async fn inspect(client: &Client) -> Result<(TableInfo, Vec<Problem>), BackendError> {
    let described = client
        .sdk
        .describe_table()
        .table_name(&client.table)
        .send()
        .await;
    let described = described.map_err(|error| of_call(error, &client.table))?;
    let table = described
        .table
        .ok_or_else(|| BackendError::new(ErrorKind::Malformed, "a description without a table"))?;
    let expiry = client
        .sdk
        .describe_time_to_live()
        .table_name(&client.table)
        .send()
        .await;
    let expiry = match expiry {
        Ok(answer) => Ok(answer.time_to_live_description),
        // Without the permission, or on a store that has no expiry, it works all the same.
        Err(error) => match error.code().map(error_kind) {
            Some(ErrorKind::Auth | ErrorKind::Unsupported) => {
                Err(error.code().unwrap_or_default().to_owned())
            }
            _ => return Err(of_call(error, &client.table)),
        },
    };
    Ok(judge(&client.table, &table, expiry))
}

fn judge(
    name: &str,
    table: &Described,
    expiry: Result<Option<TimeToLiveDescription>, String>,
) -> (TableInfo, Vec<Problem>) {
    let mut problems = Vec::new();
    let status = table.table_status().map_or("unknown", TableStatus::as_str);
    match table.table_status() {
        None | Some(TableStatus::Active | TableStatus::Updating) => {}
        Some(status) => problems.push(Problem::NotReady(format!("table {name} is {status}"))),
    }
    let key = key_of(table);
    if key != [(PK.to_owned(), "S".to_owned())] {
        let key = key
            .iter()
            .map(|(name, kind)| format!("`{name}` of type {kind}"));
        problems.push(Problem::Wrong(format!(
            "table {name} has the key {}, and it must be `{PK}` of type S alone; a key cannot be changed, so use another table",
            key.collect::<Vec<_>>().join(" and ")
        )));
    }
    let time_to_live = match expiry {
        Ok(description) => judge_expiry(name, description, &mut problems),
        Err(code) => {
            problems.push(Problem::Unknown(format!(
                "whether table {name} removes expired items could not be seen ({code}); without, it grows"
            )));
            None
        }
    };
    let capacity = match table.provisioned_throughput() {
        Some(units) if units.write_capacity_units().unwrap_or(0) > 0 => Capacity::Provisioned {
            read: positive(units.read_capacity_units()),
            write: positive(units.write_capacity_units()),
        },
        _ => Capacity::OnDemand,
    };
    let info = TableInfo {
        name: name.into(),
        status: status.into(),
        capacity,
        key,
        time_to_live,
        items: positive(table.item_count()),
        bytes: positive(table.table_size_bytes()),
        problems: problems
            .iter()
            .map(|problem| match problem {
                Problem::Wrong(text) | Problem::NotReady(text) | Problem::Unknown(text) => {
                    text.clone()
                }
            })
            .collect(),
    };
    (info, problems)
}

fn key_of(table: &Described) -> Vec<(String, String)> {
    let mut key: Vec<_> = table.key_schema().iter().collect();
    key.sort_by_key(|part| *part.key_type() != KeyType::Hash);
    key.iter()
        .map(|part| {
            let attribute = table
                .attribute_definitions()
                .iter()
                .find(|attribute| attribute.attribute_name() == part.attribute_name());
            let kind = attribute.map_or("?", |attribute| attribute.attribute_type().as_str());
            (part.attribute_name().to_owned(), kind.to_owned())
        })
        .collect()
}

fn judge_expiry(
    name: &str,
    description: Option<TimeToLiveDescription>,
    problems: &mut Vec<Problem>,
) -> Option<(String, String)> {
    let status = description
        .as_ref()
        .and_then(TimeToLiveDescription::time_to_live_status);
    let attribute = description
        .as_ref()
        .and_then(TimeToLiveDescription::attribute_name);
    match status {
        Some(status @ (TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)) => {
            let attribute = attribute.unwrap_or("?");
            if attribute != EXPIRES_AT {
                problems.push(Problem::Wrong(format!(
                    "table {name} removes items by `{attribute}`, and it must be `{EXPIRES_AT}`"
                )));
            }
            Some((attribute.to_owned(), status.as_str().to_owned()))
        }
        _ => {
            let how = format!(
                "aws dynamodb update-time-to-live --table-name {name} --time-to-live-specification Enabled=true,AttributeName={EXPIRES_AT}"
            );
            problems.push(Problem::Wrong(format!(
                "table {name} removes no expired items and would grow for ever: turn expiry on by `{EXPIRES_AT}` ({how})"
            )));
            None
        }
    }
}

fn positive<T: TryFrom<i64> + Default>(number: Option<i64>) -> T {
    number
        .and_then(|number| T::try_from(number).ok())
        .unwrap_or_default()
}
