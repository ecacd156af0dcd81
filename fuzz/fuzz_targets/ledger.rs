//! The ledger against a model that keeps a flag for every byte. Input: the most files open at once (1 byte), then
//! operations of 4 bytes: what, file, offset, length.
#![no_main]

use std::collections::BTreeMap;

use carrack_fuzz::Input;
use carrack_model::{ByteRange, FileId, RangeSet};
use carrack_wire::{ArrivedObjectAction, ArrivalLedger, ArrivalLedgerError};
use libfuzzer_sys::fuzz_target;

struct ModelFile {
    arrived: Vec<bool>,
    attached: Option<u8>,
}

#[derive(Default)]
struct Model {
    open: BTreeMap<u64, ModelFile>,
    open_max: usize,
    newest: u64,
}

impl Model {
    fn announce(&mut self, id: u64, size: u8, attached: Option<u8>, held: u8) -> Result<(), ArrivalLedgerError> {
        if id <= self.newest {
            return Err(ArrivalLedgerError::NotRising(FileId(id)));
        }
        if self.open.len() >= self.open_max {
            return Err(ArrivalLedgerError::TooManyOpen(self.open_max));
        }
        self.newest = id;
        let mut arrived = vec![false; size.into()];
        arrived[..held.into()].fill(true);
        self.open.insert(id, ModelFile { arrived, attached });
        Ok(())
    }

    fn arrive(&mut self, id: u64, range: ByteRange) -> Result<ArrivedObjectAction<u8>, ArrivalLedgerError> {
        if id > self.newest {
            return Ok(ArrivedObjectAction::Early);
        }
        let file = self.open.get_mut(&id).ok_or(ArrivalLedgerError::NotOpen(FileId(id)))?;
        let bytes = file.bytes(range).filter(|bytes| !bytes.is_empty() && !bytes.contains(&true));
        bytes.ok_or(ArrivalLedgerError::BadRange(FileId(id), range))?.fill(true);
        Ok(file.attached.map_or(ArrivedObjectAction::Drop, ArrivedObjectAction::Write))
    }

    fn reject(&mut self, id: u64, range: ByteRange) {
        let bytes = self.open.get_mut(&id).and_then(|file| file.bytes(range));
        if let Some(bytes) = bytes.filter(|bytes| !bytes.contains(&false)) {
            bytes.fill(false);
        }
    }

    fn commit(&mut self, id: u64) -> Result<Option<u8>, ArrivalLedgerError> {
        let file = self.open.remove(&id).ok_or(ArrivalLedgerError::NotOpen(FileId(id)))?;
        if file.attached.is_some() && file.arrived.contains(&false) {
            return Err(ArrivalLedgerError::NotWhole(FileId(id)));
        }
        Ok(file.attached)
    }
}

impl ModelFile {
    fn bytes(&mut self, range: ByteRange) -> Option<&mut [bool]> {
        let start = usize::try_from(range.offset).ok()?;
        let end = start.checked_add(usize::try_from(range.len).ok()?)?;
        self.arrived.get_mut(start..end)
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let open_max = usize::from(input.byte() % 5);
    let mut ledger: ArrivalLedger<u8> = ArrivalLedger::new(open_max);
    let mut model = Model { open_max, ..Model::default() };
    while let Some([what, id, offset, len]) = input.take() {
        let id = u64::from(id % 16);
        let file = FileId(id);
        let near = ByteRange::new(offset.into(), len.into());
        let far = ByteRange::new(u64::MAX - u64::from(offset), len.into());
        match what % 8 {
            0 => {
                let attached = (len & 1 == 0).then_some(len);
                // Of some files the first half is there already.
                let held = if len & 2 == 0 { 0 } else { offset / 2 };
                let mut ranges = RangeSet::new();
                ranges.insert(ByteRange::new(0, held.into()));
                assert_eq!(
                    ledger.announce(file, offset.into(), attached, ranges),
                    model.announce(id, offset, attached, held)
                );
            }
            1 | 2 => assert_eq!(ledger.record_arrival(file, near), model.arrive(id, near)),
            3 => assert_eq!(ledger.record_arrival(file, far), model.arrive(id, far)),
            4 => {
                ledger.reject(file, near);
                model.reject(id, near);
            }
            5 => {
                let given_up = model.open.get_mut(&id).and_then(|file| file.attached.take());
                assert_eq!(ledger.give_up(file), given_up);
            }
            6 => assert_eq!(ledger.commit(file), model.commit(id)),
            _ => {
                let abandoned = model.open.remove(&id).map(|file| file.attached);
                assert_eq!(ledger.abandon(file), abandoned.ok_or(ArrivalLedgerError::NotOpen(file)));
            }
        }
        assert_eq!(ledger.open_count(), model.open.len());
    }
});
