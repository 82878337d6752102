"""Readable names of C++ and Rust functions; what is not mangled stays as it is."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadowgraph.image import demangle, open_image, read_functions
from shadowgraph.image.rust_legacy import demangle_rust_legacy
from shadowgraph.image.rust_v0 import demangle_rust_v0
from tests.support.elf_files import compile_text, installed, symbol_addresses

RUST = """
use std::fmt::Debug;
struct Matrix<const N: usize, const C: char, const B: bool, const I: i32>([f64; N]);
impl<const N: usize, const C: char, const B: bool, const I: i32> Matrix<N, C, B, I> {
    #[inline(never)] fn sum(&self) -> f64 { self.0.iter().sum() }
}
trait Shape { fn area(&self) -> f64; }
impl Shape for (f64,) { #[inline(never)] fn area(&self) -> f64 { self.0 } }
impl<T: Debug> Shape for [T; 3] { #[inline(never)] fn area(&self) -> f64 { format!("{:?}", self).len() as f64 } }
#[inline(never)] fn apply<F: Fn(&str) -> usize>(f: F) -> usize { f("abc") }
#[inline(never)] fn dynamic(s: &dyn Shape, f: &mut dyn FnMut(i32) -> Option<u8>) -> f64 { f(3); s.area() }
#[inline(never)] fn keep<T>(t: T) -> T { std::hint::black_box(t) }
#[inline(never)] fn größe(x: u32) -> u32 { std::hint::black_box(x) }
extern "C" fn back(x: i32) -> i32 { x }
mod outer { pub mod inner { #[inline(never)] pub fn deep() -> String {
    let f = || { let g = |x: i32| x.to_string(); g(3) }; f() } } }
// The standard library may be mangled in the older way; what it has of generic functions is made anew for this program.
fn library() -> usize {
    use std::{collections::{BTreeMap, HashMap, VecDeque}, rc::Rc, sync::{mpsc, Arc, Mutex}, thread};
    let tree: BTreeMap<String, Vec<u8>> = (0..9).map(|i: u8| (i.to_string(), vec![i; 3])).collect();
    let map: HashMap<&str, (i64, char)> = [("a", (1, 'x')), ("b", (2, 'y'))].into_iter().collect();
    let (sender, receiver) = mpsc::channel::<Option<Box<[u16]>>>();
    let total = Arc::new(Mutex::new(VecDeque::from(vec![3_u32, 1, 2])));
    let other = Arc::clone(&total);
    let work = move || { other.lock().unwrap().push_back(4); sender.send(Some(Box::new([7]))).unwrap() };
    thread::spawn(work).join().unwrap();
    let mut sorted: Vec<_> = total.lock().unwrap().iter().copied().collect();
    sorted.sort_by(|a, b| b.cmp(a));
    let shared: Rc<dyn Debug> = Rc::new(sorted);
    format!("{:?} {:?} {:?} {:?}", tree, map, receiver.recv(), shared).len()
}
fn main() {
    println!("{}", library());
    println!("{}", Matrix::<2, 'x', true, -7>([1.0, 2.0]).sum());
    println!("{}", apply(|s| s.len()));
    println!("{}", dynamic(&(1.5,), &mut |x| Some(x as u8)) + [1, 2, 3].area());
    keep::<fn(&u8) -> &u8>(|x| x);
    keep::<extern "C" fn(i32) -> i32>(back);
    let _ = keep::<Box<dyn for<'a> Fn(&'a str, &'a mut [u8]) -> &'a str + Send>>(Box::new(|a, _| a));
    keep::<*const [u8; 4]>(std::ptr::null());
    keep::<(i8, u16, ())>((1, 2, ()));
    keep::<Option<Box<dyn Iterator<Item = (i32,)>>>>(None);
    println!("{} {}", größe(3), outer::inner::deep());
}
"""


@pytest.mark.parametrize(
    ("mangled", "readable"),
    [
        ("main", "main"),
        ("", ""),
        ("_Zebra", "_Zebra"),
        ("_Z", "_Z"),
        ("_Reset", "_Reset"),
        ("_RNv", "_RNv"),
        ("sub_401000", "sub_401000"),
        ("_Z3addii", "add(int, int)"),
        ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back(int const&)"),
        ("_ZThn16_N1C1fEv", "non-virtual thunk to C::f()"),
        ("_ZTv0_n24_N1C1fEv", "virtual thunk to C::f()"),
        ("_Z4workPc.constprop.0", "work(char*) [clone .constprop.0]"),
        ("_Z4workPc.isra.0.cold", "work(char*) [clone .isra.0] [clone .cold]"),
        ("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE", "core::fmt::Formatter::write_str"),
        ("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE.llvm.123", "core::fmt::Formatter::write_str"),
        (
            "_ZN60_$LT$alloc..string..String$u20$as$u20$core..fmt..Display$GT$3fmt17hbcd0123456789aefE",
            "<alloc::string::String as core::fmt::Display>::fmt",
        ),
        ("_ZN1r28_$u7b$$u7b$closure$u7d$$u7d$17hdc1db9b0009e0ea3E", "r::{{closure}}"),
        ("_ZN3abc3def16h0123456789abcdeE", "abc::def::h0123456789abcde"),
        ("_RNvCs6GmmlP4bgsG_1r4main", "r::main"),
        ("_RNCNvCs6GmmlP4bgsG_1r4mains_0", "r::main::{closure#1}"),
        ("_RNCNCNvCs6GmmlP4bgsG_1r4main00", "r::main::{closure#0}::{closure#0}"),
        ("_RINvCs6GmmlP4bgsG_1r4keepFKClElEB2_", 'r::keep::<extern "C" fn(i32) -> i32>'),
        ("_RNvMCs6GmmlP4bgsG_1rINtB2_6MatrixKj1_Kc27_Kb0_Kl7_E3sumB2_", "<r::Matrix<1, '\\'', false, 7>>::sum"),
        ("_RINvCs6GmmlP4bgsG_1r4keepKlna_E", "r::keep::<-10>"),
        ("_RNvCs6GmmlP4bgsG_1ru9gre_6ka8i", "r::größe"),
        ("_RNvCs6GmmlP4bgsG_1r4main.llvm.4711", "r::main"),
    ],
)
def test_names_are_readable(mangled, readable):
    assert demangle([mangled]) == [readable]


def test_the_unicode_example_is_what_the_book_gives():
    assert demangle(["_RNqCs4fqI2P2rA04_11utf8_identsu30____7hkackfecea1cbdathfdh9hlq6y"]) == [
        "utf8_idents::საჭმელად_გემრიელი_სადილი"
    ]


def test_names_of_a_cxx_library_agree_with_cxxfilt():
    functions = read_functions(open_image(installed("/usr/lib/x86_64-linux-gnu/libstdc++.so.6")), debug_roots=())
    names = [name for name in functions.preferred_names if name.startswith("_Z")][::7]
    got = demangle(names)
    assert sum(mangled == readable for mangled, readable in zip(names, got, strict=True)) == 0
    # c++filt writes std::string in full, the run-time library abbreviates it: leave those out.
    plain = [index for index, name in enumerate(names) if not re.search(r"S[abdios]", name)]
    assert len(plain) > 100
    want = cxxfilt([names[index] for index in plain], "gnu-v3")
    assert [got[index] for index in plain] == want


def cxxfilt(names: list[str], style: str) -> list[str]:
    if shutil.which("c++filt") is None:
        pytest.skip("c++filt is not installed")
    done = subprocess.run(["c++filt", "-s", style], input="\n".join(names), capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_names_of_a_rust_program_agree_with_cxxfilt():
    path = compile_text(RUST, "--edition=2021 -Copt-level=0 -Csymbol-mangling-version=v0 -Awarnings", "rustc")
    names = sorted(name for name in symbol_addresses(path) if name.startswith("_R"))
    assert len(names) > 300
    without_hashes = [re.sub(r"\[[0-9a-f]{5,16}\]", "", text) for text in cxxfilt(names, "rust")]
    types = r"(?<=[\w'])(?:: (?:[ui](?:8|16|32|64|128|size)|bool|char))\b"
    want = [re.sub(types, "", text) for text in without_hashes]
    assert demangle(names) == want
    assert "r::größe" in {name.replace("source", "r") for name in demangle(names)}


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="CNvtMXYIBKLEpsuRQPOATFDGhjlec_0123456789abz", max_size=60))
def test_no_rust_name_surprises(text):
    assert isinstance(demangle_rust_v0("_R" + text), str)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ZN17h0E$LTGTu7e.abc", max_size=60))
def test_no_legacy_name_surprises(text):
    assert isinstance(demangle_rust_legacy("_ZN" + text + "17h0123456789abcdefE"), str)


def test_references_back_cannot_run_away():
    # Each level refers twice to the level before: 2 to the 40th if it were printed.
    levels = "TRhRhE"
    name = "_RINvC1a1b" + "T" + levels
    for _ in range(40):
        at = len(name) - 2
        name += f"TB{_base62(at - len(levels))}B{_base62(at - len(levels))}E"
    assert demangle_rust_v0(name + "EE") == ""


def _base62(value: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    if value == 0:
        return "_"
    value, text = value - 1, ""
    while True:
        value, digit = divmod(value, 62)
        text = digits[digit] + text
        if not value:
            return text + "_"
