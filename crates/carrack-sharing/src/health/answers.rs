//! The answers of Prometheus' HTTP API as values. Pure.
//! <https://prometheus.io/docs/prometheus/latest/querying/api/>

use std::collections::BTreeMap;

use serde::Deserialize;

/// A series of an answer.
#[derive(Debug, PartialEq, Deserialize)]
pub(super) struct MetricSeries {
    #[serde(rename = "metric")]
    pub labels: BTreeMap<String, String>,
    value: Option<(f64, String)>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

#[derive(Deserialize)]
struct PrometheusAnswerStatus {
    status: String,
    data: Option<PrometheusResultType>,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct PrometheusResultType {
    #[serde(rename = "resultType")]
    kind: String,
}

#[derive(Deserialize)]
struct SeriesAnswer {
    data: PrometheusSeriesList,
}

#[derive(Deserialize)]
struct PrometheusSeriesList {
    result: Vec<MetricSeries>,
}

/// The reason why an answer has no series.
#[derive(Debug, PartialEq)]
pub(super) enum NoSeries {
    /// Prometheus' error text.
    Refused(String),
    /// The problem of the answer.
    Strange(String),
}

impl MetricSeries {
    /// The points: Unix seconds and values. Values that are no numbers are left out, and negative ones, which
    /// rates don't have.
    pub fn points(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        self.value.iter().chain(&self.values).filter_map(|(at, text)| {
            let value: f64 = text.parse().ok()?;
            (value.is_finite() && value >= 0.0).then_some((*at as i64, value))
        })
    }
}

/// The series of an answer's body.
pub(super) fn parse_series(body: &[u8]) -> Result<Vec<MetricSeries>, NoSeries> {
    let reply: PrometheusAnswerStatus = serde_json::from_slice(body).map_err(strange)?;
    let kind = match (reply.status.as_str(), reply.data) {
        ("success", Some(PrometheusResultType { kind })) => kind,
        ("error", _) => return Err(NoSeries::Refused(reply.error)),
        _ => return Err(NoSeries::Strange("neither success nor error".to_owned())),
    };
    match kind.as_str() {
        // Read again: the form of the result depends on its type.
        "vector" | "matrix" => {
            serde_json::from_slice(body).map(|success: SeriesAnswer| success.data.result).map_err(strange)
        }
        other => Err(NoSeries::Refused(format!("it gives a {other}, and a vector of rates is needed"))),
    }
}

fn strange(error: serde_json::Error) -> NoSeries {
    NoSeries::Strange(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_and_matrices_are_read() {
        let vector = br#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"device":"sda"},"value":[1435781451.781,"12.5"]},
            {"metric":{"device":"sdb"},"value":[1435781451.781,"NaN"]}]}}"#;
        let read = parse_series(vector).unwrap();
        assert_eq!(read[0].labels["device"], "sda");
        assert_eq!(read[0].points().collect::<Vec<_>>(), [(1_435_781_451, 12.5)]);
        assert_eq!(read[1].points().count(), 0);
        let matrix = br#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{},"values":[[1,"1"],[2,"+Inf"],[3,"-1"],[4,"4e3"]]}]},"warnings":["x"]}"#;
        assert_eq!(parse_series(matrix).unwrap()[0].points().collect::<Vec<_>>(), [(1, 1.0), (4, 4000.0)]);
    }

    #[test]
    fn what_is_no_series_says_why() {
        let refused = parse_series(br#"{"status":"error","errorType":"bad_data","error":"parse error"}"#);
        assert_eq!(refused, Err(NoSeries::Refused("parse error".into())));
        let scalar = parse_series(br#"{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}"#);
        assert!(matches!(scalar, Err(NoSeries::Refused(why)) if why.contains("scalar")));
        for strange in ["", "{}", "<html>", r#"{"status":"success"}"#, r#"{"status":"x","data":null}"#] {
            assert!(matches!(parse_series(strange.as_bytes()), Err(NoSeries::Strange(_))), "{strange}");
        }
    }
}
