//! What Rust reaches on the same file: krabka-protocol, CRC checked, four fields of each record read.
//!
//! `rival FILE MODE`: for each line "PASSES" on the standard input it makes so
//! many passes and prints the sum over all records of offset + timestamp (ms) + key length + first byte of
//! the value, of one pass. MODE: views, copies (each value its own memory) or crc (batches only; the sum of sizes);
//! with "file " before it each pass reads the file, else it is in memory from the start.

use std::{env, fs, fs::File, hint::black_box, io, io::BufRead, io::Write, os::unix::fs::FileExt};

use krabka_protocol::records::{validate_one_v2_batch, RecordBatchBorrowed};

fn decode(file: &[u8], copied: bool) -> u64 {
    let (mut rest, mut sum) = (file, 0u64);
    while !rest.is_empty() {
        let batch = RecordBatchBorrowed::decode_borrow_with_policy(&mut rest, Default::default()).expect("a whole batch");
        let base_offset = batch.header().base_offset.get();
        let base_timestamp = batch.header().base_timestamp.get();
        for record in batch.iter() {
            let record = record.expect("a whole record");
            let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
            let first = if copied {
                let (key, value) = (black_box(key.to_vec()), black_box(value.to_vec()));
                key.len() as u64 + u64::from(value[0])
            } else {
                key.len() as u64 + u64::from(value[0])
            };
            let offset = (base_offset + i64::from(record.offset_delta)) as u64;
            sum = sum.wrapping_add(offset + (base_timestamp + record.timestamp_delta) as u64 + first);
        }
    }
    sum
}

fn check(file: &[u8]) -> u64 {
    let mut position = 0;
    while position < file.len() {
        position += validate_one_v2_batch(&file[position..]).expect("a right CRC").total_len;
    }
    position as u64
}

const CHUNK_BYTES: usize = 1 << 20;
const OVERHEAD: usize = 12;

/// Reads a file in chunks into one buffer, and takes the whole batches of each.
fn of_file(path: &str, chunk: &mut [u8], sum_of: fn(&[u8]) -> u64) -> u64 {
    let file = File::open(path).expect("a readable file");
    let (size, mut position, mut sum) = (file.metadata().expect("a size").len(), 0, 0u64);
    while position < size {
        let got = file.read_at(chunk, position).expect("a read");
        let mut whole = 0;
        while whole + OVERHEAD <= got {
            let length = u32::from_be_bytes(chunk[whole + 8..whole + 12].try_into().expect("four bytes"));
            let end = whole + OVERHEAD + length as usize;
            if end > got {
                break;
            }
            whole = end;
        }
        assert!(whole > 0, "no whole batch at {position}");
        sum = sum.wrapping_add(sum_of(&chunk[..whole]));
        position += whole as u64;
    }
    sum
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let (is_file, mode) = match arguments[2].strip_prefix("file ") {
        Some(mode) => (true, mode),
        None => (false, arguments[2].as_str()),
    };
    let sum_of: fn(&[u8]) -> u64 = match mode {
        "views" => |bytes| decode(bytes, false),
        "copies" => |bytes| decode(bytes, true),
        "crc" => check,
        other => panic!("unknown mode {other}"),
    };
    let memory = if is_file { Vec::new() } else { fs::read(&arguments[1]).expect("a readable file") };
    let mut chunk = vec![0u8; CHUNK_BYTES];
    let mut pass = || if is_file { of_file(&arguments[1], &mut chunk, sum_of) } else { sum_of(&memory) };
    for line in io::stdin().lock().lines() {
        let passes: u32 = line.expect("text").trim().parse().expect("a number of passes");
        let mut sum = 0;
        for _ in 0..passes {
            sum = black_box(pass());
        }
        println!("{sum}");
        io::stdout().flush().expect("an open output");
    }
}
