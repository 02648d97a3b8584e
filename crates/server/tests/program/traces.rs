//! Traces of requests, as a collector of OpenTelemetry gets them.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;

use crate::client::{read_body, read_head, request};
use crate::process::{Gateway, LONG, eventually};
use crate::upstream::{OK, answering, nowhere, serving};

/// A span, and what says who sent it.
#[derive(Debug)]
struct Span {
    service: BTreeMap<String, String>,
    attributes: BTreeMap<String, String>,
    span: opentelemetry_proto::tonic::trace::v1::Span,
}

/// A collector, and what it gets.
fn collector() -> (String, Receiver<Span>) {
    let (spans, received) = channel();
    let address = serving(move |mut stream| {
        while let Some((line, headers)) = read_head(&mut stream) {
            assert_eq!(line, "POST /v1/traces HTTP/1.1");
            let kind = (
                "content-type".to_owned(),
                "application/x-protobuf".to_owned(),
            );
            assert!(headers.contains(&kind), "{headers:?}");
            let body = read_body(&mut stream, &headers);
            let request = ExportTraceServiceRequest::decode(&*body).unwrap();
            for resource in request.resource_spans {
                let service = texts(&resource.resource.unwrap_or_default().attributes);
                for span in resource.scope_spans.into_iter().flat_map(|it| it.spans) {
                    let _ = spans.send(Span {
                        service: service.clone(),
                        attributes: texts(&span.attributes),
                        span,
                    });
                }
            }
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    (format!("http://{address}"), received)
}

fn texts(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{other:?}"),
    };
    let pairs = attributes
        .iter()
        .map(|it| (it.key.clone(), text(&it.value).unwrap_or_default()));
    pairs.collect()
}

/// Stops the gateway; what was sent by then.
fn flushed(mut gateway: Gateway, received: &Receiver<Span>) -> Vec<Span> {
    gateway.signal("TERM");
    assert!(gateway.ended().success());
    received.try_iter().collect()
}

const PARENT: &str = "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A gateway whose traces are all in one last batch.
fn gateway(collector: &str, upstream: SocketAddr, more: &[&str]) -> Gateway {
    let upstream = format!("http://{upstream}");
    let arguments = ["--traces-endpoint", collector, "--upstream", &*upstream];
    let arguments = [&arguments, more, &["--drain-delay", "0"]].concat();
    Gateway::start_with(&arguments, &[("OTEL_BSP_SCHEDULE_DELAY", "3600000")])
}

#[test]
fn a_request_is_a_span_without_its_identity_and_the_upstream_is_told_of_it() {
    let (endpoint, received) = collector();
    let (upstream, requests) = answering(OK);
    let order = ["--identity-order", "user_id", "--quota", "1/h"];
    let more = [&order[..], &["--traces-service-name", "gate"]].concat();
    let gateway = gateway(&endpoint, upstream, &more);
    let ask = |headers: &str| request(gateway.address, "GET", "/orders?token=s3cr3t", headers);
    let user = format!("X-User-ID: jane\r\n{PARENT}tracestate: a=1\r\nConnection: traceparent\r\n");
    let admitted = ask(&user);
    assert_eq!((admitted.status, ask(&user).status), (200, 429));
    assert_eq!(ask("").status, 401);
    let usage = "/usage/jane?identity_type=user_id";
    assert_eq!(request(gateway.address, "GET", usage, "").status, 200);
    assert_eq!(request(gateway.address, "GET", "/ready", "").status, 200);
    let made_up = request(gateway.address, "MADEUP", "/", "X-User-ID: joe\r\n");
    assert_eq!(made_up.status, 200);

    let spans = flushed(gateway, &received);
    let shown: Vec<_> = spans
        .iter()
        .map(|it| {
            let told = |name: &str| it.attributes.get(name).map_or("-", |text| text);
            let rule = (told("tollgate.rule"), told("tollgate.origin"));
            let came = (told("http.request.method"), told("url.path"));
            let went = (told("http.response.status_code"), told("tollgate.outcome"));
            (&*it.span.name, came, rule, went)
        })
        .collect();
    let (rule, none) = (("default", "shared"), ("-", "-"));
    let remembered = ("default", "remembered_refusal");
    let refused = shown[1].2;
    assert!(refused == rule || refused == remembered, "{refused:?}");
    assert_eq!(
        shown,
        [
            ("GET", ("GET", "/orders"), rule, ("200", "admitted")),
            ("GET", ("GET", "/orders"), refused, ("429", "refused")),
            ("GET", ("GET", "/orders"), none, ("401", "rejected")),
            ("GET", ("GET", "/usage/***"), none, ("200", "local")),
            ("HTTP", ("_OTHER", "/"), rule, ("200", "admitted")),
        ]
    );
    for Span { service, span, .. } in &spans {
        assert_eq!(service["service.name"], "gate");
        assert_eq!(span.kind, SpanKind::Server as i32);
        assert!(span.parent_span_id.is_empty(), "{span:?}");
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        let all = format!("{span:?}");
        assert!(!all.contains("jane") && !all.contains("s3cr3t"), "{all}");
    }
    // Whoever is not trusted continues no trace of ours, and takes no field away.
    let first = &spans[0].span;
    let told = format!("00-{}-{}-01", hex(&first.trace_id), hex(&first.span_id));
    let asked = requests.recv_timeout(LONG).unwrap();
    assert_eq!(asked.header("traceparent"), [told]);
    assert_eq!(asked.header("tracestate"), [""; 0]);
    let id = admitted.header("x-request-id").unwrap();
    assert_eq!(spans[0].attributes["tollgate.request_id"], id);
}

#[test]
fn a_trace_of_a_trusted_proxy_is_continued_as_it_says() {
    let (endpoint, received) = collector();
    let (upstream, requests) = answering(OK);
    let trusted = [
        "--trusted-proxies",
        "127.0.0.1",
        "--traces-sample-ratio",
        "0",
    ];
    let gateway = gateway(&endpoint, upstream, &trusted);
    let unsampled = PARENT.replace("-01\r", "-00\r");
    for headers in [&format!("{PARENT}tracestate: a=1\r\n"), &unsampled, ""] {
        assert_eq!(request(gateway.address, "GET", "/", headers).status, 200);
    }
    let spans = flushed(gateway, &received);
    assert_eq!(spans.len(), 1, "{spans:?}");
    let span = &spans[0].span;
    assert_eq!(hex(&span.trace_id), TRACE);
    assert_eq!(hex(&span.parent_span_id), "b7ad6b7169203331");
    let told = || requests.recv_timeout(LONG).unwrap();
    let (sampled, unsampled, own) = (told(), told(), told());
    let id = hex(&span.span_id);
    assert_eq!(
        sampled.header("traceparent"),
        [format!("00-{TRACE}-{id}-01")]
    );
    assert_eq!(sampled.header("tracestate"), ["a=1"]);
    // Not sent, and still one trace for those behind.
    let unsampled = unsampled.header("traceparent")[0];
    assert!(
        unsampled.starts_with(&format!("00-{TRACE}-")),
        "{unsampled}"
    );
    assert!(unsampled.ends_with("-00"), "{unsampled}");
    let own = own.header("traceparent")[0];
    assert!(!own.contains(TRACE) && own.ends_with("-00"), "{own}");
}

#[test]
fn a_failure_is_an_error_of_its_span() {
    let (endpoint, received) = collector();
    let gateway = gateway(&endpoint, nowhere(), &["--traces-parent", "all"]);
    let answer = request(gateway.address, "GET", "/", PARENT);
    assert_eq!(answer.status, 502);
    let spans = flushed(gateway, &received);
    assert_eq!(hex(&spans[0].span.trace_id), TRACE);
    let status = spans[0].span.status.as_ref().unwrap();
    assert_eq!(status.code, StatusCode::Error as i32);
    assert_eq!(spans[0].attributes["error.type"], "502");
}

#[test]
fn a_collector_that_is_away_or_silent_is_told_of_once_and_costs_no_request() {
    let silent = serving(|mut stream| while read_head(&mut stream).is_some() {});
    for endpoint in [nowhere(), silent] {
        let endpoint = format!("http://{endpoint}");
        let environment = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ];
        let mut gateway = Gateway::start_with(&["--drain-delay", "0"], &environment);
        let told = |gateway: &Gateway| gateway.log().matches("traces cannot be sent").count();
        for _ in 0..20 {
            assert_eq!(request(gateway.address, "GET", "/", "").status, 200);
        }
        eventually("it is told", || told(&gateway) == 1);
        for _ in 0..20 {
            assert_eq!(request(gateway.address, "GET", "/", "").status, 200);
        }
        gateway.signal("TERM");
        assert!(gateway.ended().success());
        assert_eq!(told(&gateway), 1, "{}", gateway.log());
    }
}
