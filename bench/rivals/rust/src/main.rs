//! What Rust reaches on the same file: krabka-protocol, CRC checked, four fields of each record read.
//!
//! `rival FILE MODE`: for each line "PASSES" on the standard input it makes so
//! many passes in memory and prints the sum over all records of offset + timestamp (ms) + key length + first byte of
//! the value, of one pass. MODE: views, copies (each value its own memory) or crc (batches only; the sum of sizes).

use std::{env, fs, hint::black_box, io, io::BufRead, io::Write};

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

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let file = fs::read(&arguments[1]).expect("a readable file");
    let pass = || match arguments[2].as_str() {
        "views" => decode(&file, false),
        "copies" => decode(&file, true),
        "crc" => check(&file),
        other => panic!("unknown mode {other}"),
    };
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
