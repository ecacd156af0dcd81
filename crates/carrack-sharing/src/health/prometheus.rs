//! A client of Prometheus' HTTP API: queries out, series in. Blocks its caller for [`PATIENCE`] at most.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use carrack_trust::{ClientTrust, client_config};
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use super::answers::{MetricSeries, NoSeries, parse_series};
use super::load_error::LoadMonitorError;

/// The time limit from the beginning of the connection to the end of the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The longest answer, in bytes: a day of 2,300 series.
pub(super) const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The default port of an http:// address.
const PORT: u16 = 9090;

/// The address of a Prometheus server: `http://host:9090`, or `https://…`, with a path before `/api/v1` for a
/// proxy.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PrometheusServerAddress {
    host: String,
    port: u16,
    is_tls: bool,
    /// Without a slash at its end.
    path: String,
}

/// A text that is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address of a Prometheus server\nhint: write http://HOST:PORT or https://HOST:PORT")]
pub struct BadPrometheusServerAddress(String);

impl std::str::FromStr for PrometheusServerAddress {
    type Err = BadPrometheusServerAddress;

    fn from_str(text: &str) -> Result<PrometheusServerAddress, BadPrometheusServerAddress> {
        PrometheusServerAddress::parse(text).ok_or_else(|| BadPrometheusServerAddress(text.to_owned()))
    }
}

impl TryFrom<String> for PrometheusServerAddress {
    type Error = BadPrometheusServerAddress;

    fn try_from(text: String) -> Result<PrometheusServerAddress, BadPrometheusServerAddress> {
        text.parse()
    }
}

impl PrometheusServerAddress {
    fn parse(text: &str) -> Option<PrometheusServerAddress> {
        let uri: hyper::Uri = text.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() || uri.query().is_some() {
            return None;
        }
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { PORT });
        Some(PrometheusServerAddress {
            host,
            port,
            is_tls,
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    fn authority(&self) -> String {
        let PrometheusServerAddress { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for PrometheusServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

/// A client of one server.
pub(super) struct PrometheusQueryClient {
    address: PrometheusServerAddress,
    tls: Option<Arc<ClientConfig>>,
    runtime: Runtime,
}

impl PrometheusQueryClient {
    /// `cas` are the trusted CAs of an https:// address, PEM; `None` for the system's. Sends nothing yet.
    pub(super) fn new(
        address: PrometheusServerAddress,
        cas: Option<Vec<u8>>,
    ) -> Result<PrometheusQueryClient, LoadMonitorError> {
        let tls = if address.is_tls {
            let trust = ClientTrust { cas, ..ClientTrust::default() };
            let mut config = ClientConfig::clone(&*client_config(&trust).map_err(system)?);
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Some(Arc::new(config))
        } else {
            None
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(PrometheusQueryClient { address, tls, runtime: runtime.map_err(system)? })
    }

    /// The series of an expression at a time, Unix seconds.
    pub(super) fn query_at(&self, query: &str, at_s: i64) -> Result<Vec<MetricSeries>, LoadMonitorError> {
        self.send_query("query", query, &[("time", at_s)])
    }

    /// The series of an expression from `start_s` to `end_s`, both included, each `step_s` seconds.
    pub(super) fn query_range(
        &self,
        query: &str,
        start_s: i64,
        end_s: i64,
        step_s: i64,
    ) -> Result<Vec<MetricSeries>, LoadMonitorError> {
        self.send_query("query_range", query, &[("start", start_s), ("end", end_s), ("step", step_s)])
    }

    fn send_query(
        &self,
        verb: &str,
        query: &str,
        times: &[(&str, i64)],
    ) -> Result<Vec<MetricSeries>, LoadMonitorError> {
        let encoded = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let mut path = format!("{}/api/v1/{verb}?query={encoded}", self.address.path);
        times.iter().for_each(|(name, value)| path.push_str(&format!("&{name}={value}")));
        // The timer must be made within the runtime.
        let got = self.runtime.block_on(async { tokio::time::timeout(PATIENCE, self.get(&path)).await });
        let (status, body) = got.unwrap_or_else(|_| Err(self.unreachable_error("no answer in time")))?;
        parse_series(&body).map_err(|why| match why {
            NoSeries::Refused(reason) => LoadMonitorError::Refused {
                address: self.address.to_string(),
                query: query.to_owned(),
                reason,
            },
            // Most likely a proxy's error page.
            NoSeries::Strange(_) if status.is_server_error() => self.unreachable_error(status),
            NoSeries::Strange(reason) => LoadMonitorError::Strange {
                address: self.address.to_string(),
                reason: if status.is_success() { reason } else { format!("{status}") },
            },
        })
    }

    async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), LoadMonitorError> {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.unreachable_error(error))?;
        let request = Request::get(path).header(header::HOST, self.address.authority());
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| self.unreachable_error(error))?;
        let asking = async move {
            let answer = sender.send_request(request).await.map_err(|error| self.unreachable_error(error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            Ok((status, body.map_err(|error| self.read_error(&*error))?.to_bytes()))
        };
        let mut asking = std::pin::pin!(asking);
        // The connection carries the answer, and may end before the whole answer is taken.
        tokio::select! {
            got = &mut asking => got,
            _ = connection => asking.await,
        }
    }

    fn read_error(&self, error: &(dyn std::error::Error + Send + Sync + 'static)) -> LoadMonitorError {
        if error.is::<LengthLimitError>() {
            LoadMonitorError::TooLong { address: self.address.to_string(), most: ANSWER_BYTES_MAX }
        } else {
            self.unreachable_error(error)
        }
    }

    async fn connect(&self) -> Result<Box<dyn PrometheusServerConnection>, LoadMonitorError> {
        let stream = TcpStream::connect((self.address.host.as_str(), self.address.port)).await;
        let stream = stream.map_err(|error| self.unreachable_error(error))?;
        let Some(config) = self.tls.clone() else { return Ok(Box::new(stream)) };
        let name =
            ServerName::try_from(self.address.host.clone()).map_err(|error| self.unreachable_error(error))?;
        let stream = TlsConnector::from(config).connect(name, stream).await;
        Ok(Box::new(stream.map_err(|error| self.unreachable_error(error))?))
    }

    fn unreachable_error(&self, reason: impl fmt::Display) -> LoadMonitorError {
        LoadMonitorError::Away { address: self.address.to_string(), reason: reason.to_string() }
    }
}

fn system(error: impl fmt::Display) -> LoadMonitorError {
    LoadMonitorError::System(error.to_string())
}

/// A connection of any kind.
trait PrometheusServerConnection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> PrometheusServerConnection for T {}

#[cfg(test)]
mod tests {
    use super::super::test_prometheus::TestPrometheus;
    use super::*;

    #[test]
    fn addresses_are_shown_as_they_are_read() {
        for (text, shown) in [
            ("http://m", "http://m:9090"),
            ("https://m/", "https://m:443"),
            ("https://m:9/prometheus/", "https://m:9/prometheus"),
            ("http://[::1]:9090", "http://[::1]:9090"),
        ] {
            assert_eq!(text.parse::<PrometheusServerAddress>().unwrap().to_string(), shown);
        }
        for wrong in ["", "m:9090", "ftp://m", "http://", "http://u:p@m", "http://m/?a=b", "/x"] {
            assert!(wrong.parse::<PrometheusServerAddress>().is_err(), "{wrong}");
        }
    }

    fn asked(
        answers: impl FnMut(&str) -> String + Send + 'static,
    ) -> Result<Vec<MetricSeries>, LoadMonitorError> {
        let server = TestPrometheus::answering(answers);
        PrometheusQueryClient::new(server.address(), None).unwrap().query_at("up{a=\"b\"}", 7)
    }

    #[test]
    fn the_query_arrives_as_it_was_meant() {
        let found = asked(|path| {
            assert_eq!(path, "/api/v1/query?query=up%7Ba%3D%22b%22%7D&time=7");
            r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[7,"1"]}]}}"#
                .into()
        });
        assert_eq!(found.unwrap()[0].points().collect::<Vec<_>>(), [(7, 1.0)]);
    }

    #[test]
    fn every_way_to_fail_has_its_name() {
        let refused = asked(|_| r#"{"status":"error","errorType":"bad_data","error":"no"}"#.into());
        assert!(matches!(refused, Err(LoadMonitorError::Refused { reason, .. }) if reason == "no"));
        assert!(matches!(asked(|_| "<html>".into()), Err(LoadMonitorError::Strange { .. })));
        let long = asked(|_| " ".repeat(ANSWER_BYTES_MAX + 1));
        assert!(matches!(long, Err(LoadMonitorError::TooLong { .. })), "{long:?}");
        let nobody = TestPrometheus::answering(|_| String::new()).address();
        let away = PrometheusQueryClient::new(nobody, None).unwrap().query_at("up", 0);
        assert!(matches!(away, Err(LoadMonitorError::Away { .. })), "{away:?}");
    }
}
