"""Generated from native/include/shadowgraph/*.h by native/generate_layout.py: do not edit."""

from __future__ import annotations

import numpy as np

ARENA_MAGIC = 0x3176676873
BLOCK_FRAMES = 32
POLICY_BLOCK = 0
POLICY_DROP = 1
POLICY_OVERWRITE = 2
RECORDERS = 8
RECORDER_SLOTS = 0xFE00000000000001
THREAD_FREE = 0
THREAD_LIVE = 1
THREAD_DEAD = 2
INSIDE_SHIFT = 7
INSIDE_SLOT = 127
SEGMENT_FREE = 0
SEGMENT_OWNED = 1
SEGMENT_FULL = 2
SEGMENT_KEPT = 3
EVENT_FREE = 0
EVENT_CLAIMED = 1
EVENT_ASKED = 2
EVENT_EXEC = 1
EVENT_EXEC_FAILED = 2
EVENT_LOADED = 3
EVENT_ENTERED = 4
OPEN_SLOW = 0x8000000000000000
OPEN_VALUES = 0x4000000000000000
OPEN_USERS = 0x2000000000000000
OPEN_MEASURED = 0x1000000000000000
OPEN_RECORDERS = 0x800000000000000
OPEN_FRUGAL = 0x400000000000000
OPEN_MARKS = 0xFFFFFFFFFF000000
FUNCTIONS = 0x80000
FUNCTION_RECORD_SIZE = 64
EXEC_EXECVE = 0
EXEC_EXECVEAT = 1
EXEC_FEXECVE = 2
FLAG_CALLER = 1
FLAG_VALUES = 2
FLAG_EXEC = 4
FLAG_LOADED = 8
FLAG_SILENT = 16
FLAG_CLONE = 32
FLAG_EXIT = 256
FLAG_TRUE_RETURN = 128
FLAG_SIGACTION = 1024
FLAG_VECTORS = 512
FLAG_EXECUTABLE = 64
VALUE_INTEGER = 1
VALUE_VECTOR = 2
VALUE_STRING = 3
STRING_CUT = 1
STRING_BAD = 2
STRING_LIMIT = 128
PLACE_STACK = 128
VALUES_LIMIT = 20
VALUES_SIZE = 0x1A00000
KEPT_LIMIT = 4096
KEPT_RETURNED_INTO = 1
KEPT_TAKEN_OUT = 2
PREDICATE_SIZE = 1024
PREDICATE_WORDS = 127
PREDICATE_REGISTERS = 8
PREDICATE_SAVED = 8
PREDICATE_NUMBER = 128
PREDICATE_OF_ENTRY = 64
PREDICATE_OF_CALL = 128
PREDICATE_NO = 255
PREDICATE_ARGUMENTS = 64
PREDICATE_TEXT_LIMIT = 4096
PREDICATE_TICKS = 132
PREDICATE_DEPTH = 133
PREDICATE_THREAD = 134
PREDICATE_PROCESS = 135
RECORD_SIZE = 16
START_BITS = 48
DEPTH_BITS = 16
FUNCTION_BITS = 24
DURATION_BITS = 40
FUNCTION_NONE = 0
ESCAPE_FIRST = 0xFFFF00
ESCAPE_LONG = 0xFFFF01
ESCAPE_KIND = 0xFFFF02
ESCAPE_VALUES = 0xFFFF03
KIND_RETURNED = 0
KIND_UNWOUND = 1
KIND_TAIL = 2
KIND_OPEN = 3
USERS = 64
NOBODY = 0xFFFFFFFFFFFFFFFF
USER_FREE = 0
USER_RECORDER = 1
USER_COUNTER = 2
USER_TOTALS = 3
USER_HISTOGRAM = 4
USER_HANDLER = 5
USER_EXPECTED = 6
VALUE_DURATION = 0
VALUE_RESULT = 1
VALUE_ARGUMENT = 2
VALUE_SOURCE = 255
VALUE_BITS_SHIFT = 8
VALUE_UNSIGNED = 0x10000
VALUE_FLOAT = 0x20000
USER_ENDED = 0x80000000
USER_LEFT = 0x40000000
USER_FOLLOWS = 0x20000000
USER_FOLLOWS_EXEC = 0x10000000
USER_VECTORS = 1
USER_SEES_VECTORS = 2
USER_ENTRY_LOOKS = 4
USER_EXIT_LOOKS = 8
DATA_LIMIT = 1024
FRUGAL_DATA_LIMIT = 1856
INSTANCE_STEP = 64
INSTANCE_LIMIT = 0x10000
INSTANCES_LIMIT = 0x10000
INSTANCES_SIZE = 0x8000000
EVENT_READY = 0x8000000000000000
EVENT_SKIP = 0x4000000000000000
EVENT_HEAD = 24
EVENT_LIMIT = 4096
PAGE_CELLS = 512
PAGES = 16384
PAGE_NUMBERS = 0x20000
COUNTER_CELLS = 0x100000
PAGE_FREE = 0
PAGE_ORPHAN = 1
PAGE_CLAIMED = 2
PAGE_USED = 3
TOTALS_CELLS = 4
HISTOGRAM_CELLS = 512
CELL_COUNT = 0
CELL_SUM = 1
CELL_MAXIMUM = 2
CELL_BUCKETS = 4
FLOAT_HISTOGRAM_CELLS = 4608
CELL_ZEROS = 3
CELL_INFINITY = 4
CELL_MINUS_INFINITY = 5
CELL_NAN = 6
FLOAT_BUCKETS = 2048
FLOAT_EXPONENT = 895
BUCKET_BITS = 3
POOL_SIZE = 0x9000000
PREDICATE_EQ = 0
PREDICATE_NE = 1
PREDICATE_LT = 2
PREDICATE_GE = 3
PREDICATE_BELOW = 4
PREDICATE_NOT_BELOW = 5
PREDICATE_MIXED_EQ = 6
PREDICATE_MIXED_NE = 7
PREDICATE_MIXED_LT = 8
PREDICATE_MIXED_GE = 9
PREDICATE_MIXED_LE = 10
PREDICATE_MIXED_GT = 11
PREDICATE_FLOAT_EQ = 12
PREDICATE_FLOAT_NE = 13
PREDICATE_FLOAT_LT = 14
PREDICATE_FLOAT_NOT_LT = 15
PREDICATE_FLOAT_LE = 16
PREDICATE_FLOAT_NOT_LE = 17
PREDICATE_TEXT_EQ = 18
PREDICATE_TEXT_NE = 19
PREDICATE_TEXT_STARTS = 20
PREDICATE_TEXT_NOT_STARTS = 21
PREDICATE_TEXT_ENDS = 22
PREDICATE_TEXT_NOT_ENDS = 23
PREDICATE_JUMP = 24
PREDICATE_ARGUMENT = 25
PREDICATE_FLOAT_ARGUMENT = 26
PREDICATE_RESULT = 27
PREDICATE_RESULT_HIGH = 28
PREDICATE_FLOAT_RESULT = 29
PREDICATE_SAVED_VALUE = 30
PREDICATE_SMALL = 31
PREDICATE_LARGE = 32
PREDICATE_ADD = 33
PREDICATE_SUB = 34
PREDICATE_MUL = 35
PREDICATE_DIV = 36
PREDICATE_MOD = 37
PREDICATE_UNSIGNED_DIV = 38
PREDICATE_UNSIGNED_MOD = 39
PREDICATE_AND = 40
PREDICATE_OR = 41
PREDICATE_XOR = 42
PREDICATE_SHIFT_LEFT = 43
PREDICATE_SHIFT_RIGHT = 44
PREDICATE_UNSIGNED_SHIFT_RIGHT = 45
PREDICATE_SCALE = 46
PREDICATE_I8 = 47
PREDICATE_I16 = 48
PREDICATE_I32 = 49
PREDICATE_U8 = 50
PREDICATE_U16 = 51
PREDICATE_U32 = 52
PREDICATE_WIDEN = 53
PREDICATE_MEMORY8 = 54
PREDICATE_MEMORY16 = 55
PREDICATE_MEMORY32 = 56
PREDICATE_MEMORY64 = 57
PREDICATE_SAVE = 58
PREDICATE_ATTEMPT = 59

user_dtype = np.dtype(
    {
        "names": [
            "kind",
            "value",
            "controller_pid",
            "data_size",
            "controller_start",
            "entry",
            "exit",
            "entry_predicate",
            "exit_predicate",
            "first_cell",
            "cell_count",
            "cell_table",
            "pool_at",
            "pool_size",
            "parts",
            "flags",
            "fault",
            "fault_address",
            "code_number",
            "code",
            "code_size",
            "events",
            "instances_at",
            "instances",
            "instance_size",
            "heartbeat",
            "controller_thread",
            "name",
            "filter",
        ],
        "formats": [
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "S32",
            "S96",
        ],
        "offsets": [
            0,
            4,
            8,
            12,
            16,
            24,
            32,
            40,
            48,
            56,
            64,
            72,
            80,
            88,
            96,
            104,
            108,
            112,
            120,
            128,
            136,
            144,
            152,
            160,
            164,
            168,
            172,
            176,
            208,
        ],
        "itemsize": 304,
    }
)

user_part_dtype = np.dtype(
    {
        "names": ["next", "pool_at", "pool_size", "first_cell", "cell_count", "reserved"],
        "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", ("<u8", (3,))],
        "offsets": [0, 8, 16, 24, 32, 40],
        "itemsize": 64,
    }
)

instances_dtype = np.dtype(
    {
        "names": ["full", "unused"],
        "formats": ["<u8", ("<u8", (7,))],
        "offsets": [0, 8],
        "itemsize": 64,
    }
)

event_ring_dtype = np.dtype(
    {
        "names": ["size", "head", "tail", "dropped"],
        "formats": ["<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 8, 16, 24],
        "itemsize": 32,
    }
)

handlers_here_dtype = np.dtype(
    {
        "names": ["epoch", "numbers"],
        "formats": ["<u8", ("<u8", (64,))],
        "offsets": [0, 8],
        "itemsize": 520,
    }
)

registry_dtype = np.dtype(
    {
        "names": [
            "side",
            "has_order",
            "epoch",
            "armed",
            "live",
            "faulted",
            "at_entry",
            "at_exit",
            "with_data",
            "conditional",
            "counters",
            "recorders",
            "limited",
            "epochs",
            "order",
            "next_function",
            "next_cell",
            "with_instances",
            "timed",
            "simple",
            "measures",
            "frugal",
            "timed_at_exit",
            "told_time",
            "told_at_entry",
            "told_at_exit",
            "quick_frugal",
            "loud_at_entry",
            "loud_at_exit",
            "since",
            "users",
        ],
        "formats": [
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            ("<u8", (64,)),
            ("<u1", (64,)),
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            ("<u8", (64,)),
            (user_dtype, (64,)),
        ],
        "offsets": [
            0,
            4,
            8,
            16,
            24,
            32,
            40,
            48,
            56,
            64,
            72,
            80,
            88,
            96,
            608,
            672,
            676,
            680,
            688,
            696,
            704,
            712,
            720,
            728,
            736,
            744,
            752,
            760,
            768,
            776,
            1288,
        ],
        "itemsize": 20744,
    }
)

page_dtype = np.dtype(
    {
        "names": ["state", "number", "thread", "pid"],
        "formats": ["<u4", "<u4", "<u4", "<u4"],
        "offsets": [0, 4, 8, 12],
        "itemsize": 16,
    }
)

losses_dtype = np.dtype(
    {
        "names": ["missed", "dropped", "filtered", "unwound"],
        "formats": ["<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 8, 16, 24],
        "itemsize": 32,
    }
)

arena_dtype = np.dtype(
    {
        "names": [
            "magic",
            "size",
            "threads_at",
            "rings_at",
            "segments_at",
            "events_at",
            "chunks_at",
            "open_at",
            "functions_at",
            "data_at",
            "registry_at",
            "losses_at",
            "pages_at",
            "cells_at",
            "pool_at",
            "values_at",
            "threads",
            "segments",
            "events",
            "chunks",
            "segment_size",
            "answered",
            "tick_base",
            "askers",
            "page_end",
            "bell",
            "waiting",
            "missed",
            "dropped",
            "missed_in_vfork",
            "reserved",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            ("<u8", (2,)),
        ],
        "offsets": [
            0,
            8,
            16,
            24,
            32,
            40,
            48,
            56,
            64,
            72,
            80,
            88,
            96,
            104,
            112,
            120,
            128,
            132,
            136,
            140,
            144,
            148,
            152,
            160,
            164,
            168,
            172,
            176,
            184,
            192,
            200,
        ],
        "itemsize": 216,
    }
)

rings_dtype = np.dtype(
    {
        "names": [
            "generation",
            "at",
            "size",
            "segments_at",
            "values_at",
            "data_at",
            "segments",
            "segment_size",
            "policy",
            "recording",
            "controller_pid",
            "heartbeat",
            "bell",
            "waiting",
            "freed",
            "waiters",
            "depth_limit",
            "unused",
            "minimal_ticks",
            "value_count",
            "reserved",
        ],
        "formats": [
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            ("<u8", (3,)),
        ],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 52, 56, 60, 64, 68, 72, 76, 80, 84, 88, 92, 96, 104, 112],
        "itemsize": 136,
    }
)

shared_thread_dtype = np.dtype(
    {
        "names": [
            "state",
            "pid",
            "tid",
            "parent_pid",
            "started",
            "ended",
            "missed",
            "dropped",
            "filtered",
            "values_lost",
            "name",
            "inside",
            "unused",
            "busy",
            "busy_stack",
            "waits",
            "reserved",
        ],
        "formats": [
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "S16",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            ("<u1", (8,)),
            "<u8",
        ],
        "offsets": [0, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 88, 96, 104, 112, 120],
        "itemsize": 128,
    }
)

segment_dtype = np.dtype(
    {
        "names": ["state", "thread", "sequence", "opened", "used", "pid", "without_call", "unused"],
        "formats": ["<u4", "<u4", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4"],
        "offsets": [0, 4, 8, 16, 24, 28, 32, 36],
        "itemsize": 40,
    }
)

event_dtype = np.dtype(
    {
        "names": ["state", "kind", "pid", "tid", "arguments", "followed_by", "heartbeat", "still", "waits"],
        "formats": ["<u4", "<u4", "<u4", "<u4", ("<u8", (4,)), "<u8", ("<u4", (64,)), ("<u1", (64,)), ("<u1", (64,))],
        "offsets": [0, 4, 8, 12, 16, 48, 56, 312, 376],
        "itemsize": 440,
    }
)

chunk_dtype = np.dtype(
    {
        "names": ["state", "thread"],
        "formats": ["<u4", "<u4"],
        "offsets": [0, 4],
        "itemsize": 8,
    }
)

open_dtype = np.dtype(
    {
        "names": ["start", "function", "users", "epoch"],
        "formats": ["<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 8, 16, 24],
        "itemsize": 32,
    }
)

function_dtype = np.dtype(
    {
        "names": ["enter", "body", "id", "flags", "users", "cell", "variant", "recorders", "callers"],
        "formats": ["<u8", "<u8", "<u4", "<u4", ("<u8", (2,)), "<u4", "<u4", "<u8", "<u8"],
        "offsets": [0, 8, 16, 20, 24, 40, 44, 48, 56],
        "itemsize": 64,
    }
)

value_dtype = np.dtype(
    {
        "names": ["kind", "place"],
        "formats": ["<u1", "<u1"],
        "offsets": [0, 1],
        "itemsize": 2,
    }
)

values_dtype = np.dtype(
    {
        "names": ["entry", "at_return", "items"],
        "formats": ["<u4", "<u4", (value_dtype, (20,))],
        "offsets": [0, 4, 8],
        "itemsize": 48,
    }
)

patch_dtype = np.dtype(
    {
        "names": ["address", "size", "original", "replacement", "is_entry", "number"],
        "formats": ["<u8", "<u1", ("<u1", (5,)), ("<u1", (5,)), "<u1", "<u4"],
        "offsets": [0, 8, 9, 14, 19, 20],
        "itemsize": 24,
    }
)

move_dtype = np.dtype(
    {
        "names": ["from", "to", "grows"],
        "formats": ["<u8", "<u8", "<u8"],
        "offsets": [0, 8, 16],
        "itemsize": 24,
    }
)

kept_dtype = np.dtype(
    {
        "names": ["base", "size", "patches", "moves", "patch_count", "move_count", "flags", "tables_size"],
        "formats": ["<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4"],
        "offsets": [0, 8, 16, 24, 32, 36, 40, 44],
        "itemsize": 48,
    }
)

settings_dtype = np.dtype(
    {
        "names": [
            "segment_size",
            "segments",
            "threads",
            "chunks",
            "caller_low",
            "caller_size",
            "minimal_ticks",
            "depth_limit",
            "frame_limit",
            "capture",
            "stacks_are_copied",
            "borrowed",
            "loader_note",
            "ask_when_loaded",
            "reserved",
            "tick_base",
            "main_stack_end",
            "arena",
            "resolver",
            "enter",
            "enter_end",
            "enter_aside",
            "enter_aside_end",
            "enter_from_caller",
            "enter_for_true_return",
            "enter_general",
            "enter_count",
            "enter_count_and_record",
            "enter_measure",
            "enter_recorders",
            "enter_frugal",
            "leave",
            "leave_end",
            "leave_aside",
            "leave_aside_end",
            "sites",
            "frames",
            "frame_count",
            "functions",
            "kept",
            "guarded",
            "thread_word",
        ],
        "formats": [
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            "<u4",
            "<u4",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
            "<u8",
        ],
        "offsets": [
            0,
            4,
            8,
            12,
            16,
            24,
            32,
            40,
            44,
            48,
            52,
            56,
            64,
            72,
            76,
            80,
            88,
            96,
            104,
            112,
            120,
            128,
            136,
            144,
            152,
            160,
            168,
            176,
            184,
            192,
            200,
            208,
            216,
            224,
            232,
            240,
            248,
            256,
            264,
            272,
            280,
            288,
        ],
        "itemsize": 296,
    }
)

predicate_dtype = np.dtype(
    {
        "names": ["steps", "words", "code"],
        "formats": ["<u4", "<u4", ("<u8", (127,))],
        "offsets": [0, 4, 8],
        "itemsize": 1024,
    }
)

predicate_input_dtype = np.dtype(
    {
        "names": [
            "integers",
            "stack",
            "vectors",
            "saved",
            "returned",
            "result",
            "result_high",
            "float_result",
            "ticks",
            "depth",
            "thread",
            "process",
        ],
        "formats": ["<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88],
        "itemsize": 96,
    }
)
