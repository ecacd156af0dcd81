//! The options of a submission in the API's description: their definitions, as JSON schemas.

use std::borrow::Cow;

use clap::{Arg, ArgAction};
use serde_json::Value;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::option_support::{SubmissionExecutorKind, is_refused_everywhere};
use crate::parsed_options::{definitions, is_switch};
use crate::submitted_options::{TransferOptions, is_of_files};

impl PartialSchema for TransferOptions {
    fn schema() -> RefOr<Schema> {
        let mut object = ObjectBuilder::new()
            .schema_type(Type::Object)
            .description(Some("What was asked for; what was not has its default. Sizes and rates are numbers of bytes, or texts such as 1GiB."))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)));
        for (name, arg) in definitions().filter(|(name, _)| !is_refused_everywhere(name)) {
            // `patterns`, `filter`, `rclone_filter` and `only` have their contents.
            if !is_of_files(name) {
                object = object.property(name.replace('-', "_"), option_schema(name, arg));
            }
        }
        let lines = "Lines of gitignore(5), the last of which counts that matches: what matches is left out, with ! in front taken.";
        let patterns =
            ArrayBuilder::new().items(typed_schema(SchemaType::new(Type::String))).description(Some(lines));
        object.property("patterns", patterns).into()
    }
}

impl ToSchema for TransferOptions {
    fn name() -> Cow<'static, str> {
        "Options".into()
    }
}

fn typed_schema(kind: SchemaType) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(kind)
}

fn option_schema(name: &str, arg: &Arg) -> Schema {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let refused =
        [(SubmissionExecutorKind::Queue, "a machine's queue"), (SubmissionExecutorKind::Fleet, "a fleet")];
    let refused = refused
        .into_iter()
        .find_map(|(way, whose)| Some(format!("Not for {whose}: {}.", way.refusal(name)?)));
    let help = [Some(help), refused].into_iter().flatten().collect::<Vec<_>>().join("\n\n");
    if is_switch(arg) {
        return typed_schema(SchemaType::new(Type::Boolean)).description(Some(help)).into();
    }
    if matches!(arg.get_action(), ArgAction::Append) {
        let texts = typed_schema(SchemaType::new(Type::String));
        return ArrayBuilder::new().items(texts).description(Some(help)).into();
    }
    let names: Vec<Value> =
        arg.get_possible_values().iter().map(|value| Value::from(value.get_name())).collect();
    let default = arg.get_default_values().first().filter(|value| !value.is_empty());
    let default = default.map(|value| Value::from(value.to_string_lossy()));
    let value = if names.is_empty() {
        typed_schema(SchemaType::from_iter([Type::String, Type::Integer]))
    } else {
        typed_schema(SchemaType::new(Type::String)).enum_values(Some(names))
    };
    value.default(default).description(Some(help)).into()
}
