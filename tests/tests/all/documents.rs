//! Documents beside the counters: the same on every store that keeps them.

use std::sync::Arc;

use tollgate::{
    Change, Changed, Collection, Document, DocumentStore, ErrorKind, SharedDocuments, connect,
};
use tollgate_dynamodb::{Capacity, create_table};
use tollgate_testkit::{LocalDynamo, RedisCluster, shared_redis};

use crate::support::{fresh, seconds};

fn of(name: &str) -> Collection<'_> {
    Collection {
        name,
        claims: "claims",
    }
}

const fn create<'a>(id: &'a str, claim: &'a str, body: &'a str) -> Change<'a> {
    Change::Create {
        id,
        claim,
        body: body.as_bytes(),
    }
}

const fn delete<'a>(id: &'a str, claim: &'a str, before: &'a str) -> Change<'a> {
    Change::Delete {
        id,
        before: before.as_bytes(),
        claim,
    }
}

/// A replacement: claim and body, before and after.
const fn replace<'a>(
    id: &'a str,
    (claim_before, before): (&'a str, &'a str),
    (claim, body): (&'a str, &'a str),
) -> Change<'a> {
    Change::Replace {
        id,
        before: before.as_bytes(),
        claim_before,
        claim,
        body: body.as_bytes(),
    }
}

async fn listed(store: &SharedDocuments, name: &str) -> Vec<(String, String)> {
    let text = |it: Document| (it.id, String::from_utf8(it.body).unwrap());
    let list = store.list(of(name)).await.unwrap();
    list.into_iter().map(text).collect()
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
    pairs.map(|(id, body)| (id.into(), body.into())).into()
}

/// What holds of every store.
async fn laws(store: SharedDocuments) {
    let name = fresh("documents");
    let change = |change| {
        let (store, name) = (&store, &name);
        async move { store.change(of(name), change).await.unwrap() }
    };
    assert_eq!(listed(&store, &name).await, []);
    assert_eq!(change(delete("a", "x", "1")).await, Changed::Missing);
    assert_eq!(
        change(replace("a", ("x", "1"), ("x", "2"))).await,
        Changed::Missing
    );
    assert_eq!(change(create("b", "y", "\u{1f600}")).await, Changed::Yes);
    assert_eq!(change(create("a", "x", "1")).await, Changed::Yes);
    assert_eq!(
        listed(&store, &name).await,
        pairs([("a", "1"), ("b", "\u{1f600}")])
    );

    assert_eq!(change(create("a", "z", "1")).await, Changed::Exists);
    let claimed = change(create("c", "x", "1")).await;
    assert!(
        matches!(&claimed, Changed::Claimed { by } if by.as_deref().is_none_or(|it| it == "a"))
    );
    assert_eq!(
        change(replace("a", ("x", "0"), ("x", "2"))).await,
        Changed::Stale
    );
    assert_eq!(
        change(replace("a", ("x", "1"), ("x", "2"))).await,
        Changed::Yes
    );
    let claimed = change(replace("a", ("x", "2"), ("y", "3"))).await;
    assert!(matches!(claimed, Changed::Claimed { .. }));
    assert_eq!(
        listed(&store, &name).await[0],
        ("a".into(), "2".into()),
        "nothing was changed"
    );

    // What it claimed is free once it claims something else.
    assert_eq!(
        change(replace("a", ("x", "2"), ("z", "3"))).await,
        Changed::Yes
    );
    assert_eq!(change(create("c", "x", "4")).await, Changed::Yes);
    assert_eq!(change(delete("a", "z", "2")).await, Changed::Stale);
    assert_eq!(change(delete("a", "z", "3")).await, Changed::Yes);
    assert_eq!(change(create("d", "z", "5")).await, Changed::Yes);
    assert_eq!(listed(&store, &name).await.len(), 3);

    // Of many at one time one wins.
    let race = Arc::new(fresh("race"));
    let mut tries = tokio::task::JoinSet::new();
    for n in 0..16 {
        let (store, race) = (store.clone(), Arc::clone(&race));
        tries.spawn(async move {
            let id = format!("id{n}");
            // A store whose writers were all turned away tells so; then nothing was written.
            loop {
                match store.change(of(&race), create(&id, "one", "x")).await {
                    Err(error) if error.kind() == ErrorKind::Contended => {}
                    answer => return answer.unwrap(),
                }
            }
        });
    }
    let answers = tries.join_all().await;
    let won = answers.iter().filter(|it| **it == Changed::Yes).count();
    assert_eq!(won, 1, "{answers:?}");
    assert_eq!(listed(&store, &race).await.len(), 1);

    // More than fit into one read.
    let many = fresh("many");
    for n in 0..130 {
        let (id, claim) = (format!("id{n:03}"), format!("claim{n}"));
        store
            .change(of(&many), create(&id, &claim, "x"))
            .await
            .unwrap();
    }
    let found = listed(&store, &many).await;
    assert_eq!(found.len(), 130);
    assert!(found.is_sorted());
}

/// Who listens is told of changes by others.
async fn told(here: &SharedDocuments, there: &SharedDocuments) {
    let name = fresh("told");
    let mut feed = here.watch(of(&name)).expect("this store tells");
    feed.changed().await.unwrap();
    there
        .change(of(&name), create("a", "x", "1"))
        .await
        .unwrap();
    tokio::time::timeout(seconds(5), feed.changed())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(listed(here, &name).await, pairs([("a", "1")]));
}

async fn documents(url: &str) -> SharedDocuments {
    connect(url)
        .await
        .unwrap()
        .documents()
        .expect("it keeps documents")
}

#[tokio::test]
async fn memory_keeps_documents() {
    let store = documents("memory://").await;
    laws(store.clone()).await;
    assert!(store.watch(of("any")).is_none());
}

#[tokio::test]
async fn redis_keeps_documents_and_tells() {
    for protocol in ["2", "3"] {
        let url = format!("{}?protocol={protocol}", shared_redis().await.url());
        let [here, there] = [documents(&url).await, documents(&url).await];
        laws(here.clone()).await;
        told(&here, &there).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_keeps_documents_and_tells() {
    let cluster = RedisCluster::start().await;
    let urls = cluster
        .masters()
        .iter()
        .map(|it| format!("redis+cluster://{}", it.address()));
    let urls: Vec<_> = urls.collect();
    let [here, there] = [documents(&urls[0]).await, documents(&urls[1]).await];
    laws(here.clone()).await;
    told(&here, &there).await;
}

#[tokio::test]
async fn dynamodb_keeps_documents() {
    let server = LocalDynamo::start().await;
    let url = format!("dynamodb://limits?endpoint={}", server.endpoint());
    create_table(&url, Capacity::OnDemand, seconds(20))
        .await
        .unwrap();
    laws(documents(&url).await).await;
}

#[tokio::test]
async fn memcached_keeps_none() {
    let store = tollgate::Connect::new("memcached://127.0.0.1:1")
        .connect()
        .await
        .unwrap();
    assert!(store.documents().is_none());
}
