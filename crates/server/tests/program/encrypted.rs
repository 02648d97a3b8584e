//! TLS in front of the gateway and behind it, and HTTP/2 over it.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::client::get;
use crate::process::{Gateway, eventually};
use crate::upstream::{OK, answering, nowhere};

/// A certificate for `localhost` and its key, in files of the test's own.
struct Certificate {
    folder: PathBuf,
    der: CertificateDer<'static>,
}

impl Certificate {
    fn new(test: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("tollgate-tls-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let der = Self::write(&folder);
        Self { folder, der }
    }

    fn write(folder: &std::path::Path) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(folder.join("certificate.pem"), made.cert.pem()).unwrap();
        made.cert.der().clone()
    }

    /// Another takes its place.
    fn renew(&mut self) {
        self.der = Self::write(&self.folder);
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(file).to_str().unwrap().to_owned()
    }

    /// A gateway that has it.
    fn gateway(&self, arguments: &[&str]) -> Gateway {
        let (certificate, key) = (self.path("certificate.pem"), self.path("key.pem"));
        let tls = ["--tls-certificate", &certificate, "--tls-key", &key];
        Gateway::start(&[&tls, arguments].concat())
    }

    /// A connection that trusts this certificate alone and would speak these.
    async fn connect(
        &self,
        address: SocketAddr,
        protocols: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

type Body = Full<hyper::body::Bytes>;

/// One request over HTTP/2.
async fn ask(stream: TlsStream<TcpStream>, request: Request<Body>) -> (Response<()>, Vec<u8>) {
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let (head, body) = client.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    connection.abort();
    (Response::from_parts(head, ()), body)
}

fn to(path: &str) -> hyper::http::request::Builder {
    Request::builder().uri(format!("https://localhost{path}"))
}

#[tokio::test]
async fn a_refused_client_is_answered_again_and_again() {
    let certificate = Certificate::new("refused");
    let gateway = certificate.gateway(&["--quota", "1/h", "--identity-order", "api_key"]);
    let mut stream = certificate.connect(gateway.address, &[]).await.unwrap();
    let request = b"GET /a HTTP/1.1\r\nHost: h\r\nX-API-Key: k\r\n\r\n";
    let mut ids = HashSet::new();
    for (time, together) in [1, 1, 1, 1, 1, 100, 1, 100].into_iter().enumerate() {
        stream.write_all(&request.repeat(together)).await.unwrap();
        let mut text = String::new();
        while !text.ends_with('}') || text.matches('}').count() < together {
            let mut read = [0; 4096];
            let length = stream.read(&mut read).await.unwrap();
            assert!(length > 0, "{text}");
            text.push_str(str::from_utf8(&read[..length]).unwrap());
        }
        let status = if time == 0 {
            "200 OK"
        } else {
            "429 Too Many Requests"
        };
        assert_eq!(text.matches(status).count(), together, "{text}");
        ids.extend(
            text.lines()
                .filter_map(|line| line.strip_prefix("x-request-id: "))
                .map(ToOwned::to_owned),
        );
    }
    assert_eq!(ids.len(), 206);
}

#[tokio::test]
async fn a_client_may_speak_http2_or_the_first_version_over_tls() {
    let certificate = Certificate::new("versions");
    let gateway = certificate.gateway(&["--quota", "2/h"]);
    for remaining in ["1", "0"] {
        let stream = certificate
            .connect(gateway.address, &[b"h2", b"http/1.1"])
            .await
            .unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (answer, _) = ask(stream, to("/x").body(Body::default()).unwrap()).await;
        assert_eq!(
            (answer.status().as_u16(), answer.version()),
            (200, Version::HTTP_2)
        );
        assert_eq!(answer.headers()["x-ratelimit-remaining"], remaining);
    }
    let stream = certificate
        .connect(gateway.address, &[b"http/1.1"])
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::builder().uri("/x").header("host", "localhost");
    let answer = client
        .send_request(request.body(Body::default()).unwrap())
        .await
        .unwrap();
    assert_eq!(answer.status(), 429, "the same client");
    connection.abort();
    assert!(
        certificate
            .connect(gateway.address, &[b"smtp"])
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_request_over_http2_reaches_an_upstream_of_the_first_version_as_one_of_it() {
    let certificate = Certificate::new("translated");
    let (upstream, requests) = answering(OK);
    let gateway = certificate.gateway(&["--upstream", &format!("http://{upstream}")]);
    let stream = certificate
        .connect(gateway.address, &[b"h2"])
        .await
        .unwrap();
    let request = to("/orders?a=b")
        .method("POST")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .body(Body::from("a body of some length"))
        .unwrap();
    let (answer, _) = ask(stream, request).await;
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().get("connection").is_none());
    let got = requests.recv_timeout(crate::process::LONG).unwrap();
    assert_eq!(
        got.header("cookie"),
        ["a=1; b=2"],
        "one field (RFC 9113, 8.2.3)"
    );
    assert_eq!(got.header("x-forwarded-proto"), ["https"]);
    assert_eq!(got.header("x-forwarded-host"), ["localhost"]);
    assert_eq!(got.header("host"), [upstream.to_string()]);
}

#[tokio::test]
async fn a_certificate_that_changes_is_used_without_a_restart() {
    let mut certificate = Certificate::new("renewed");
    let gateway = certificate.gateway(&[]);
    assert!(certificate.connect(gateway.address, &[]).await.is_ok());
    // What cannot be used is told, and what there was stays.
    std::fs::write(certificate.folder.join("key.pem"), "none").unwrap();
    eventually("it is told", || {
        gateway.log().contains("the certificate stays as it was")
    });
    assert!(certificate.connect(gateway.address, &[]).await.is_ok());
    certificate.renew();
    eventually("it is read", || {
        gateway.log().contains("the certificate was read again")
    });
    assert!(certificate.connect(gateway.address, &[]).await.is_ok());
}

#[test]
fn an_upstream_over_tls_must_show_a_certificate_that_is_trusted() {
    let certificate = Certificate::new("upstream");
    let upstream = certificate.gateway(&[]);
    let url = format!("https://localhost:{}/base", upstream.address.port());
    let trusted = certificate.path("certificate.pem");
    let gateway = Gateway::start(&["--upstream", &url, "--upstream-ca", &trusted]);
    let answer = get(gateway.address, "/x");
    assert_eq!(answer.status, 200, "{}", gateway.log());
    assert_eq!(answer.json()["would_forward"]["path"], "/base/x");
    let gateway = Gateway::start(&["--upstream", &url]);
    assert_eq!(get(gateway.address, "/x").status, 502);
    let nobody = format!("https://localhost:{}", nowhere().port());
    let gateway = Gateway::start(&["--upstream", &nobody]);
    assert_eq!(get(gateway.address, "/x").status, 502);
}
