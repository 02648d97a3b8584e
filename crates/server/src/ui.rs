//! `/docs` and `/redoc`: the OpenAPI document for people, without a network. The bundles are in
//! `vendor`, as their projects publish them, compressed.
//!
//! Their parts are asked for as `/docs?NAME`, so that no path is taken from the backend besides
//! `/docs` and `/redoc`.

/// A page or a part of one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Its content type.
    pub(crate) kind: &'static str,
    /// Its bytes.
    pub(crate) bytes: &'static [u8],
    /// Whether they are compressed, by gzip.
    pub(crate) gzip: bool,
}

/// Nothing is fetched from elsewhere, and nobody may frame these pages.
pub(crate) const POLICY: &str = "default-src 'self'; script-src 'self' 'unsafe-eval'; \
     style-src 'self' 'unsafe-inline'; img-src 'self' data:; worker-src 'self' blob:; \
     frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const DOCS: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Tollgate</title>
<link rel="stylesheet" href="/docs?swagger-ui.css">
</head>
<body>
<div id="ui"></div>
<script src="/docs?swagger-ui-bundle.js"></script>
<script src="/docs?start.js"></script>
</body>
</html>
"#;

const DOCS_START: &str = r##"SwaggerUIBundle({url: "/openapi.json", dom_id: "#ui", validatorUrl: null});
"##;

const REDOC: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Tollgate</title>
</head>
<body>
<div id="ui"></div>
<script src="/redoc?redoc.standalone.js"></script>
<script src="/redoc?start.js"></script>
</body>
</html>
"#;

const REDOC_START: &str = r#"Redoc.init("/openapi.json", {disableSearch: false}, document.getElementById("ui"));
"#;

/// What is at this path with this query, if it is one of the two.
pub(crate) fn part(path: &str, query: Option<&str>) -> Option<Part> {
    let text = |kind, text: &'static str| Part {
        kind,
        bytes: text.as_bytes(),
        gzip: false,
    };
    let bundle = |kind, bytes: &'static [u8]| Part {
        kind,
        bytes,
        gzip: true,
    };
    Some(match (path, query.unwrap_or_default()) {
        ("/docs", "swagger-ui-bundle.js") => bundle(
            SCRIPT,
            include_bytes!("../vendor/swagger-ui/swagger-ui-bundle.js.gz"),
        ),
        ("/docs", "swagger-ui.css") => bundle(
            STYLE,
            include_bytes!("../vendor/swagger-ui/swagger-ui.css.gz"),
        ),
        ("/docs", "start.js") => text(SCRIPT, DOCS_START),
        ("/docs", _) => text(HTML, DOCS),
        ("/redoc", "redoc.standalone.js") => bundle(
            SCRIPT,
            include_bytes!("../vendor/redoc/redoc.standalone.js.gz"),
        ),
        ("/redoc", "start.js") => text(SCRIPT, REDOC_START),
        ("/redoc", _) => text(HTML, REDOC),
        _ => return None,
    })
}
