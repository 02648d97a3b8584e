//! `tollgate dynamodb`: makes and shows the table that counters are kept in.

use std::time::Duration;

use tollgate::dynamodb::{Capacity, create_table, describe_table};

use crate::cli::{DynamodbArgs, DynamodbCommand};
use crate::output::Lines;
use crate::{NEGATIVE, Outcome, SUCCESS};

/// A new table takes some seconds, and its expiry some more.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the command.
pub(crate) fn run(args: &DynamodbArgs) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let table = runtime.block_on(async {
        match &args.command {
            DynamodbCommand::CreateTable(create) => {
                let capacity = match (create.read_units, create.write_units) {
                    (Some(read), Some(write)) => Capacity::Provisioned { read, write },
                    _ => Capacity::OnDemand,
                };
                create_table(&create.url, capacity, LIMIT).await
            }
            DynamodbCommand::Describe(describe) => describe_table(&describe.url, LIMIT).await,
        }
    })?;
    let mut lines = Lines::new();
    lines.text(table.to_string().trim_end())?;
    lines.flush()?;
    Ok(if table.problems.is_empty() {
        SUCCESS
    } else {
        NEGATIVE
    })
}
