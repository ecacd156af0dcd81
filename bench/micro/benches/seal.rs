//! Sealing and opening objects in place with an AEAD. carrack does not encrypt data connections yet: this
//! benchmark prepares that decision (the cipher, the object size, and the time of two cores that is left for
//! copying).
//!
//! The sealed form is that of a transfer: the body in its slot, the 80-byte frame header as associated data,
//! the tag apart from the body as in the header. To be opened in place the body needs its tag behind it, so
//! the sink's slot has 16 spare bytes and the tag is copied there; that copy is measured. *cycling* takes
//! buffers in turn that exceed the L2 cache together.

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{
    AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, Tag,
    UnboundKey,
};
use carrack_bench::Buffers;
use carrack_wire::HEADER_BYTES;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Bytes: between a socket's buffer and the default slot.
const SIZES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];

const TAG_BYTES: usize = 16;

const CIPHERS: [(&str, &Algorithm); 3] =
    [("aes-256-gcm", &AES_256_GCM), ("aes-128-gcm", &AES_128_GCM), ("chacha20-poly1305", &CHACHA20_POLY1305)];

/// A key and the number of its next nonce, as an end of a connection holds them.
struct Sealer {
    key: LessSafeKey,
    next_number: u64,
}

/// A sealed body's nonce and tag.
type Sealed = (u64, Tag);

impl Sealer {
    fn new(algorithm: &'static Algorithm) -> Sealer {
        let key = UnboundKey::new(algorithm, &vec![7; algorithm.key_len()]).expect("the key has its length");
        Sealer { key: LessSafeKey::new(key), next_number: 0 }
    }

    /// Seals all of `buffer` but its last 16 bytes.
    fn seal(&mut self, buffer: &mut [u8]) -> Sealed {
        let number = self.next_number;
        self.next_number += 1;
        let body_len = buffer.len() - TAG_BYTES;
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(number), Aad::from([5; HEADER_BYTES]), &mut buffer[..body_len])
            .expect("the body is far below the cipher's limit");
        (number, tag)
    }

    /// Opens a body that `seal` left in `buffer`.
    fn open(&self, buffer: &mut [u8], (number, tag): &Sealed) {
        let body_len = buffer.len() - TAG_BYTES;
        buffer[body_len..].copy_from_slice(tag.as_ref());
        self.key
            .open_in_place(nonce(*number), Aad::from([5; HEADER_BYTES]), buffer)
            .expect("it was sealed with this key, nonce and header");
    }
}

fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn seal(criterion: &mut Criterion) {
    measure(criterion, "seal", |sealer, buffers, rounds| {
        let start = Instant::now();
        for _ in 0..rounds {
            drop(black_box(sealer.seal(buffers.turn())));
        }
        start.elapsed()
    });
}

/// A body can be opened only once, so all buffers are sealed with the clock stopped, and then opened.
fn open(criterion: &mut Criterion) {
    measure(criterion, "open", |sealer, buffers, rounds| {
        let mut elapsed = Duration::ZERO;
        let mut left = rounds;
        while left > 0 {
            let sealed: Vec<Sealed> = (0..buffers.count()).map(|_| sealer.seal(buffers.turn())).collect();
            let start = Instant::now();
            let opened = sealed.iter().take(left as usize);
            opened.for_each(|sealed| sealer.open(buffers.turn(), sealed));
            elapsed += start.elapsed();
            left = left.saturating_sub(sealed.len() as u64);
        }
        elapsed
    });
}

/// Measures each cipher; `work` runs the given number of rounds and returns their time.
fn measure(criterion: &mut Criterion, name: &str, work: impl Fn(&mut Sealer, &mut Buffers, u64) -> Duration) {
    for (cipher, algorithm) in CIPHERS {
        let mut group = criterion.benchmark_group(format!("{name}/{cipher}"));
        for size_bytes in SIZES {
            group.throughput(Throughput::Bytes(size_bytes as u64));
            let slot_bytes = size_bytes + TAG_BYTES;
            for (state, make) in
                [("hot", Buffers::hot as fn(usize) -> Buffers), ("cycling", Buffers::cycling)]
            {
                let (mut sealer, mut buffers) = (Sealer::new(algorithm), make(slot_bytes));
                let id = BenchmarkId::new(state, format!("{} KiB", size_bytes >> 10));
                group.bench_function(id, |bencher| {
                    bencher.iter_custom(|rounds| work(&mut sealer, &mut buffers, rounds));
                });
            }
        }
        group.finish();
    }
}

criterion_group! { name = benches; config = common::config(); targets = seal, open }
criterion_main!(benches);
