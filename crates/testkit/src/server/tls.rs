//! Certificates that last as long as a test.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// Writes `ca.pem`, `cert.pem` (for localhost and 127.0.0.1, signed by it) and `key.pem`.
pub(super) fn write_certificates(folder: &Path) {
    let ca_key = KeyPair::generate().expect("a key can be made");
    let mut ca = CertificateParams::new(Vec::new()).expect("no names");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(ca, ca_key).expect("the parameters are those of a CA");
    let key = KeyPair::generate().expect("a key can be made");
    let names = vec!["localhost".to_owned(), "127.0.0.1".into()];
    let certificate = CertificateParams::new(names)
        .expect("the names are names")
        .signed_by(&key, &ca)
        .expect("the issuer can sign");
    for (file, text) in [
        ("ca.pem", ca.pem()),
        ("cert.pem", certificate.pem()),
        ("key.pem", key.serialize_pem()),
    ] {
        std::fs::write(folder.join(file), text).expect("the temporary folder is writable");
    }
}
