//! Payloads with schemas on the writer's side: a row a field.

use std::collections::HashMap;

use gputrace_trace::TimeNs;
use gputrace_trace::names::NameId;
use gputrace_trace::tables::PayloadField;

use super::operations::Names;
use crate::nvtx::{FIELD_BYTES, FIRST_SCHEMA, FieldKind, PayloadRecord, SchemaField, plain_field};

/// Schemas and enumerations that are kept.
const MOST_KNOWN: usize = 4096;
/// Schemas within schemas.
const DEEPEST: usize = 4;
/// Elements of an array that become rows.
const MOST_ELEMENTS: usize = 64;

#[derive(Default)]
struct Schema {
    name: u64,
    fields: Vec<SchemaField>,
}

#[derive(Default)]
struct Enumeration {
    bytes: usize,
    names: HashMap<u64, u64>,
}

/// What is known of the program's schemas.
#[derive(Default)]
pub(super) struct Payloads {
    schemas: HashMap<(u32, u64), Schema>,
    enumerations: HashMap<(u32, u64), Enumeration>,
    /// Payloads whose schema nobody registered, not told yet.
    pub(super) unknown: u64,
    /// Rows that are done.
    pub(super) ready: Vec<PayloadField>,
}

/// An integer of so many bytes; sign-extended where it has a sign.
fn integer(bytes: &[u8], signed: bool) -> u64 {
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    let value = u64::from_le_bytes(whole);
    let unused = 64 - 8 * bytes.len() as u32;
    if signed && unused < 64 {
        (value.cast_signed() << unused >> unused).cast_unsigned()
    } else {
        value
    }
}

impl Payloads {
    /// A schema was registered.
    pub(super) fn schema(&mut self, fields: &[u64], bytes: &[u8]) {
        let key = (fields[0] as u32, fields[1]);
        if self.schemas.len() < MOST_KNOWN || self.schemas.contains_key(&key) {
            let (fields_there, _) = bytes.as_chunks::<FIELD_BYTES>();
            let schema = Schema {
                name: fields[2],
                fields: fields_there.iter().map(SchemaField::read).collect(),
            };
            self.schemas.insert(key, schema);
        }
    }

    /// An enumeration was registered.
    pub(super) fn enumeration(&mut self, fields: &[u64], bytes: &[u8]) {
        let key = (fields[0] as u32, fields[1]);
        if self.enumerations.len() < MOST_KNOWN || self.enumerations.contains_key(&key) {
            let (pairs, _) = bytes.as_chunks::<16>();
            let half = |pair: &[u8; 16], at: usize| integer(&pair[at..at + 8], false);
            let enumeration = Enumeration {
                bytes: usize::try_from(fields[2])
                    .ok()
                    .filter(|bytes| (1..=8).contains(bytes))
                    .unwrap_or(4),
                names: pairs.iter().map(|pair| (half(pair, 0), half(pair, 8))).collect(),
            };
            self.enumerations.insert(key, enumeration);
        }
    }

    /// A range or mark carries these bytes.
    pub(super) fn payload(
        &mut self,
        fields: &[u64],
        bytes: &[u8],
        thread: u32,
        domain: NameId,
        names: &mut Names<'_>,
    ) {
        let payload = PayloadRecord::read(fields);
        let schema = self.schemas.get(&(payload.domain, payload.schema));
        let row = PayloadField {
            time_ns: TimeNs(payload.time_ns),
            thread,
            domain,
            range: names.get(payload.range),
            schema: schema.map_or_else(NameId::default, |schema| names.get(schema.name)),
            schema_id: payload.schema,
            ..PayloadField::default()
        };
        let mut rows = Vec::new();
        let mut reader = Reader {
            payloads: self,
            domain: payload.domain,
            bytes,
            row,
            names,
            rows: &mut rows,
        };
        if schema.is_some() {
            reader.schema(payload.schema, 0, 0);
        } else if payload.schema < FIRST_SCHEMA
            && let Some(field) = plain_field(payload.schema)
        {
            reader.field(&field, 0, 0);
        } else {
            self.unknown += 1;
        }
        self.ready.append(&mut rows);
    }
}

/// Reads one payload.
struct Reader<'a, 'b> {
    payloads: &'a Payloads,
    domain: u32,
    bytes: &'a [u8],
    /// What all of its rows have in common.
    row: PayloadField,
    names: &'a mut Names<'b>,
    rows: &'a mut Vec<PayloadField>,
}

impl Reader<'_, '_> {
    fn schema(&mut self, id: u64, at: usize, depth: usize) {
        let Some(schema) = self.payloads.schemas.get(&(self.domain, id)) else {
            return;
        };
        for field in &schema.fields {
            self.field(field, at, depth);
        }
    }

    fn field(&mut self, field: &SchemaField, at: usize, depth: usize) {
        let at = at + field.offset as usize;
        self.row.field = self.names.get(field.name);
        let (bytes, count) = (usize::from(field.bytes), field.count as usize);
        if field.kind == FieldKind::Characters && (count > 1 || bytes == 1) {
            // A text of fixed length ends at its first zero.
            let Some(characters) = self.bytes.get(at..(at + count).min(self.bytes.len())) else {
                return;
            };
            let text = characters.split(|byte| *byte == 0).next().unwrap_or_default();
            let text = self.names.interner.intern(&String::from_utf8_lossy(text));
            self.rows.push(PayloadField {
                text: Some(text),
                ..self.row.clone()
            });
            return;
        }
        if field.kind == FieldKind::Other {
            self.other(field, at, depth);
            return;
        }
        for index in 0..count.min(MOST_ELEMENTS) {
            let Some(value) = self.bytes.get(at + index * bytes..at + (index + 1) * bytes) else {
                return;
            };
            let mut row = PayloadField {
                element: (count > 1).then_some(index as u32),
                ..self.row.clone()
            };
            match field.kind {
                FieldKind::Float if bytes == 4 => {
                    row.number = Some(f32::from_bits(integer(value, false) as u32).into());
                }
                FieldKind::Float => row.number = Some(f64::from_bits(integer(value, false))),
                FieldKind::Text => row.text = Some(self.names.get(integer(value, false))),
                _ => row.integer = Some(integer(value, field.kind == FieldKind::Signed)),
            }
            self.rows.push(row);
        }
    }

    /// A field whose type is an enumeration, or another schema.
    fn other(&mut self, field: &SchemaField, at: usize, depth: usize) {
        let payloads = self.payloads;
        if let Some(enumeration) = payloads.enumerations.get(&(self.domain, field.detail)) {
            let Some(value) = self.bytes.get(at..at + enumeration.bytes) else {
                return;
            };
            let value = integer(value, false);
            let text = enumeration.names.get(&value).map(|text| self.names.get(*text));
            self.rows.push(PayloadField {
                integer: Some(value),
                text,
                ..self.row.clone()
            });
        } else if depth < DEEPEST {
            self.schema(field.detail, at, depth + 1);
        }
    }
}
