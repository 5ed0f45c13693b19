//! Conversion of values to and from PostgreSQL.

use super::pg_error::ColumnTypeMismatch;
use crate::db::{SqlValue, replace_nul};
use crate::error::SqlError;
use bytes::BytesMut;
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

impl ToSql for SqlValue<'_> {
    /// Converts to the type that the statement expects.
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let wrong = || -> Box<dyn Error + Sync + Send> {
            Box::new(ColumnTypeMismatch(format!("{self:?} does not match a column of type {ty}")))
        };
        match *self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(n) if *ty == Type::INT8 => n.to_sql(ty, out),
            Self::Int(n) if *ty == Type::INT4 => i32::try_from(n).map_err(|_| wrong())?.to_sql(ty, out),
            Self::Int(n) if *ty == Type::FLOAT8 => (n as f64).to_sql(ty, out),
            Self::Real(x) if *ty == Type::FLOAT8 => x.to_sql(ty, out),
            Self::Text(text) if <&str as ToSql>::accepts(ty) => replace_nul(text).to_sql(ty, out),
            _ => Err(wrong()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// The value of a parameter `$n`: one value, or one of each row for a statement over many rows.
#[derive(Debug)]
pub(super) enum SqlParameter<'v> {
    One(SqlValue<'v>),
    Many(Vec<SqlValue<'v>>),
}

impl ToSql for SqlParameter<'_> {
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

/// An owned value that waits to be sent.
#[derive(Debug)]
pub(super) enum OwnedSqlValue {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
}

impl From<SqlValue<'_>> for OwnedSqlValue {
    fn from(value: SqlValue<'_>) -> Self {
        match value {
            SqlValue::Null => Self::Null,
            SqlValue::Int(n) => Self::Int(n),
            SqlValue::Real(x) => Self::Real(x),
            SqlValue::Text(text) => Self::Text(text.to_owned()),
        }
    }
}

impl OwnedSqlValue {
    pub(super) fn value(&self) -> SqlValue<'_> {
        match self {
            Self::Null => SqlValue::Null,
            Self::Int(n) => SqlValue::Int(*n),
            Self::Real(x) => SqlValue::Real(*x),
            Self::Text(text) => SqlValue::Text(text),
        }
    }
}

pub(crate) fn column_value(row: &Row, index: usize) -> Result<SqlValue<'_>, SqlError> {
    let column =
        row.columns().get(index).ok_or_else(|| SqlError::damage(format!("there is no column {index}")))?;
    let int = |n: Option<i64>| n.map_or(SqlValue::Null, SqlValue::Int);
    let value = match *column.type_() {
        Type::INT8 => row.try_get(index).map(int),
        Type::INT4 => row.try_get::<_, Option<i32>>(index).map(|n| int(n.map(i64::from))),
        Type::BOOL => row.try_get::<_, Option<bool>>(index).map(|yes| int(yes.map(i64::from))),
        Type::FLOAT8 => {
            row.try_get::<_, Option<f64>>(index).map(|x| x.map_or(SqlValue::Null, SqlValue::Real))
        }
        _ => row.try_get::<_, Option<&str>>(index).map(|text| text.map_or(SqlValue::Null, SqlValue::Text)),
    };
    value.map_err(|e| SqlError::damage(format!("column `{}`: {e}", column.name())))
}
