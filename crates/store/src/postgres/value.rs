//! Values on their way to PostgreSQL and back.

use super::fault::WrongType;
use crate::db::{Value, without_nul};
use crate::error::Fault;
use bytes::BytesMut;
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

impl ToSql for Value<'_> {
    /// As whatever the statement asks for there.
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let wrong = || -> Box<dyn Error + Sync + Send> {
            Box::new(WrongType(format!("{self:?} does not fit a column of type {ty}")))
        };
        match *self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(n) if *ty == Type::INT8 => n.to_sql(ty, out),
            Self::Int(n) if *ty == Type::INT4 => i32::try_from(n).map_err(|_| wrong())?.to_sql(ty, out),
            Self::Int(n) if *ty == Type::FLOAT8 => (n as f64).to_sql(ty, out),
            Self::Real(x) if *ty == Type::FLOAT8 => x.to_sql(ty, out),
            Self::Text(text) if <&str as ToSql>::accepts(ty) => without_nul(text).to_sql(ty, out),
            _ => Err(wrong()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// What stands for a `$n`: a value, or one of each row where a statement is for many rows.
#[derive(Debug)]
pub(super) enum Parameter<'v> {
    One(Value<'v>),
    Many(Vec<Value<'v>>),
}

impl ToSql for Parameter<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::One(value) => value.to_sql(ty, out),
            Self::Many(values) => values.to_sql(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A value that waits to be sent.
#[derive(Debug)]
pub(super) enum Kept {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
}

impl From<Value<'_>> for Kept {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Int(n) => Self::Int(n),
            Value::Real(x) => Self::Real(x),
            Value::Text(text) => Self::Text(text.to_owned()),
        }
    }
}

impl Kept {
    pub(super) fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Int(n) => Value::Int(*n),
            Self::Real(x) => Value::Real(*x),
            Self::Text(text) => Value::Text(text),
        }
    }
}

pub(crate) fn column_value(row: &Row, index: usize) -> Result<Value<'_>, Fault> {
    let column =
        row.columns().get(index).ok_or_else(|| Fault::damage(format!("there is no column {index}")))?;
    let int = |n: Option<i64>| n.map_or(Value::Null, Value::Int);
    let value = match *column.type_() {
        Type::INT8 => row.try_get(index).map(int),
        Type::INT4 => row.try_get::<_, Option<i32>>(index).map(|n| int(n.map(i64::from))),
        Type::BOOL => row.try_get::<_, Option<bool>>(index).map(|yes| int(yes.map(i64::from))),
        Type::FLOAT8 => row.try_get::<_, Option<f64>>(index).map(|x| x.map_or(Value::Null, Value::Real)),
        _ => row.try_get::<_, Option<&str>>(index).map(|text| text.map_or(Value::Null, Value::Text)),
    };
    value.map_err(|e| Fault::damage(format!("column `{}`: {e}", column.name())))
}
