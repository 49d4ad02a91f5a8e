"""Every form of PTX text, to the statement, variable and line that it becomes; every refusal, at its line; every limit, at its edge."""

import pytest

from zoo.emulator import ParseError, parser
from zoo.emulator.parser import parse

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def shown(operand):
    """An operand by its kind and parts."""
    match operand:
        case parser.Register():
            return f"{operand.name}.{operand.type}#{operand.number}"
        case parser.Special():
            return f"special {operand.name}"
        case parser.Immediate():
            return f"{operand.form} {operand.value:#x}"
        case parser.Vector():
            return ["vector", *map(shown, operand.items)]
        case parser.Group():
            return ["group", *map(shown, operand.items)]
        case parser.Address():
            return ["at", operand.base and shown(operand.base), operand.offset]
        case parser.TensorAddress():
            return ["tensor", shown(operand.map), shown(operand.coordinates), *map(shown, operand.rest)]
        case parser.Negated():
            return ["not", shown(operand.operand)]
        case parser.PredicatePair():
            return ["pair", shown(operand.first), shown(operand.second)]
        case parser.Label():
            return f"label {operand.name}@{operand.position}"
        case parser.Variable():
            return f"variable {operand.name}"
        case parser.Function():
            return f"function {operand.name}"
    assert operand is parser.SINK
    return "_"


def body(text, module="", parameters=""):
    """The statements of a function of this text; `%a`, `%b` of 32 bits, `%d0`, `%d1` of 64 and `%p`, `%q` are declared on its first line."""
    frame = ".reg .b32 %a, %b; .reg .b64 %d<2>; .reg .pred %p, %q;"
    return parse(f"{HEAD}{module}.entry k({parameters}) {{ {frame}\n{text}\n}}").functions["k"]


OPERANDS = {
    "%a": "%a.b32#0",
    "%d1": "%d1.b64#3",
    "%tid.x": "special %tid.x",
    "%lanemask_lt": "special %lanemask_lt",
    "WARP_SZ": "int 0x20",
    "_": "_",
    "0": "int 0x0",
    "7": "int 0x7",
    "-7": "int -0x7",
    "5U": "int 0x5",
    "07": "int 0x7",
    "010": "int 0x8",
    "017": "int 0xf",
    "0x1F": "int 0x1f",
    "0XffU": "int 0xff",
    "0b101": "int 0x5",
    "0B11U": "int 0x3",
    "0xffffffffffffffff": "int 0xffffffffffffffff",
    "0f3F800000": "f32 0x3f800000",
    "-0f3F800000": "f32 0xbf800000",
    "0F3F800000": "f32 0x3f800000",
    "0d3FF0000000000000": "f64 0x3ff0000000000000",
    "-0D3FF0000000000000": "f64 0xbff0000000000000",
    "1.5": "f64 0x3ff8000000000000",
    "-1.5": "f64 0xbff8000000000000",
    "2.5e1": "f64 0x4039000000000000",
    "1.25E-1": "f64 0x3fc0000000000000",
    "{%a, 1}": ["vector", "%a.b32#0", "int 0x1"],
    "{%a}": ["vector", "%a.b32#0"],
    "{}": ["vector"],
    "(%a, _)": ["group", "%a.b32#0", "_"],
    "({%a}, [%b])": ["group", ["vector", "%a.b32#0"], ["at", "%b.b32#1", 0]],
    "!%p": ["not", "%p.pred#4"],
    "%p|%q": ["pair", "%p.pred#4", "%q.pred#5"],
    "_|%q": ["pair", "_", "%q.pred#5"],
    "%p|_": ["pair", "%p.pred#4", "_"],
    "[%d0]": ["at", "%d0.b64#2", 0],
    "[%d0+8]": ["at", "%d0.b64#2", 8],
    "[%d0-8]": ["at", "%d0.b64#2", -8],
    "[%d0+-8]": ["at", "%d0.b64#2", -8],
    "[%d0+8+4-1]": ["at", "%d0.b64#2", 11],
    "[%d0-2147483648]": ["at", "%d0.b64#2", -(2**31)],
    "[%d0+4294967295]": ["at", "%d0.b64#2", 2**32 - 1],
    "[16]": ["at", None, 16],
    "[-16]": ["at", None, -16],
    "g": "variable g",
    "g+4": ["at", "variable g", 4],
    "g-4": ["at", "variable g", -4],
    "g[4]": ["at", "variable g", 4],
    "g[-2147483648]": ["at", "variable g", -(2**31)],
    "g[4294967295]": ["at", "variable g", 2**32 - 1],
    "[g+4]": ["at", "variable g", 4],
    "f": "function f",
    "[%d0, {%a, %b}]": ["tensor", ["at", "%d0.b64#2", 0], ["vector", "%a.b32#0", "%b.b32#1"]],
    "[%d0, {%a}, {1, 2}, %b]": ["tensor", ["at", "%d0.b64#2", 0], ["vector", "%a.b32#0"], ["vector", "int 0x1", "int 0x2"], "%b.b32#1"],
    "L": "label L@2",
    # expressions, which only people write
    "4*32+1": "int 0x81", "1+4*32": "int 0x81", "3-1-1": "int 0x1", "(1<<4)-1": "int 0xf", "-(3)": "int -0x3", "~3": "int -0x4", "((2))": "int 0x2",
    "7/4": "int 0x1", "-7/4": "int -0x1", "0x100>>2+2": "int 0x10", "6&3|8^1": "int 0xb", "0x7fffffffffffffff+1": "int -0x8000000000000000",
    "{%a, 2*3}": ["vector", "%a.b32#0", "int 0x6"],
    "[%d0+4*8]": ["at", "%d0.b64#2", 32],
    "[%d0+4*8-2*(3+1)]": ["at", "%d0.b64#2", 24],
    "[4*4]": ["at", None, 16],
    "g+4*2": ["at", "variable g", 8],
    "g[4*2]": ["at", "variable g", 8],
}  # fmt: skip


def test_arguments_of_a_call_are_a_list_even_if_they_are_numbers():
    (statement,) = body("call f, (1);", ".func f(.param .b32 x) { ret; }\n").statements
    assert [shown(one) for one in statement.operands] == ["function f", ["group", "int 0x1"]]


@pytest.mark.parametrize("text", OPERANDS)
def test_an_operand_is_taken_for_what_it_is(text):
    function = body(f"op.x {text};\nop.y %a, {text}, %b;\nL: ret;", ".global .b32 g; .func f() { ret; }\n")
    assert [shown(one) for one in function.statements[0].operands] == [OPERANDS[text]]
    assert [shown(one) for one in function.statements[1].operands] == ["%a.b32#0", OPERANDS[text], "%b.b32#1"]


def test_a_statement_has_its_guard_its_text_and_both_its_lines():
    function = body(
        """.loc 1 7 3
        @%p  mov.b32   %a ,
            %b;
        .loc 2 9 0, function_name $L__info+12, inlined_at 1 7 3
        @!%q ret;;
        .pragma "nounroll"; .loc 3 4 5, function_name f
        bar.sync 0;""",
        '.file 1 "a.cu"\n.file 2 "b.cuh", 17, 4\n',
    )
    assert [(one.guard and shown(one.guard), one.opcode, one.line, one.source, one.text) for one in function.statements] == [
        ("%p.pred#4", "mov.b32", 8, (1, 7), "@%p mov.b32 %a , %b"),
        (["not", "%q.pred#5"], "ret", 11, (2, 9), "@!%q ret"),
        (None, "bar.sync", 13, (3, 4), "bar.sync 0"),
    ]


def test_the_place_in_a_source_ends_with_its_function():
    functions = parse(f"{HEAD}.entry a() {{ .loc 1 2 3\n ret; }}\n.entry b() {{ ret; }}").functions
    assert [functions[name].statements[0].source for name in "ab"] == [(1, 2), None]


def test_each_block_has_names_and_labels_of_its_own_and_those_around_it():
    function = body("""
        { .reg .b16 %a; one %a, %b; bra L; L: }
        two %a;
        { { .reg .f32 %b; three %a, %b; bra L; } }
        L: four L;
    """)
    assert [(one.opcode, *map(shown, one.operands)) for one in function.statements] == [
        ("one", "%a.b16#6", "%b.b32#1"), ("bra", "label L@2"), ("two", "%a.b32#0"), ("three", "%a.b32#0", "%b.f32#7"), ("bra", "label L@5"),
        ("four", "label L@5"),
    ]  # fmt: skip
    assert [(one.name, one.type, one.number, one.function is function) for one in function.registers[5:]] == [
        ("%q", "pred", 5, True), ("%a", "b16", 6, True), ("%b", "f32", 7, True),
    ]  # fmt: skip


def test_a_list_of_targets_leads_where_its_labels_stand():
    function = body(
        """
        T: .branchtargets A, B, A;
        U: .branchtargets B;
        P: .callprototype (.param .b32 _) _ (.param .b32 _);
        Q: .callprototype ()_ (.param .align 8 .b8 _[24], .param .b8 _[]) .noreturn;
        C: .calltargets f, g;
        call (%a), %d0, (%b), P;
        call %d0, Q;
        call %d0, C;
        brx.idx %a, T;
        brx.idx %a, U;
        A: one;
        B: two;
    """,
        ".func f() { ret; } .func g();",
    )
    prototype, other, listed = (one.operands[-1] for one in function.statements[:3])
    assert [[one.size for one in variables] for variables in prototype.prototype] == [[4], [4]] and prototype.targets is None
    assert [[one.size for one in variables] for variables in other.prototype] == [[], [24, None]]
    assert [one.name for one in listed.targets] == ["f", "g"] and listed.prototype is None
    first, second = (one.operands[1] for one in function.statements[3:5])
    assert [*map(shown, first.targets)] == ["label A@5", "label B@6", "label A@5"] and [*map(shown, second.targets)] == ["label B@6"]
    assert first.function is function and first.targets[0].targets is None and len(function.statements) == 7


def variables(text):
    found = parse(HEAD + text).variables
    return {
        one.name: (one.space, one.type, one.align, one.size, one.data.hex(), one.relocations, one.external, one.line)
        for one in found.values()
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".global .b32 a;", {"a": ("global", "b32", 4, 4, "", [], False, 4)}),
        (".const .align 16 .b8 a[3][5], b;", {"a": ("const", "b8", 16, 15, "", [], False, 4), "b": ("const", "b8", 16, 1, "", [], False, 4)}),
        ("\n.visible .shared .v4 .f32 a[2];", {"a": ("shared", "f32", 16, 32, "", [], False, 5)}),
        (".global .v2 .b16 a; .global .v8 .b8 b;", {"a": ("global", "b16", 4, 4, "", [], False, 4), "b": ("global", "b8", 8, 8, "", [], False, 4)}),
        (".extern .shared .align 128 .b8 a[];", {"a": ("shared", "b8", 128, None, "", [], True, 4)}),
        (".weak .global .u16 a[] = {1, -1, 0x102};", {"a": ("global", "u16", 2, 6, "0100ffff0201", [], False, 4)}),
        (".common .global .u8 a[2][2] = {{1, 2}, {3}};", {"a": ("global", "u8", 1, 4, "010203", [], False, 4)}),
        (".global .u8 a[4] = {1, 2, 3, 4};", {"a": ("global", "u8", 1, 4, "01020304", [], False, 4)}),
        (".global .f32 a[] = {0f3F800000, -0f3F800000};", {"a": ("global", "f32", 4, 8, "0000803f000080bf", [], False, 4)}),
        (".global .f64 a[] = {0d3FF8000000000000, -0F3FC00000};", {"a": ("global", "f64", 8, 16, "000000000000f83f000000000000f8bf", [], False, 4)}),
        (".global .attribute(.managed) .s64 a = -2;", {"a": ("global", "s64", 8, 8, "feffffffffffffff", [], False, 4)}),
        (".global .b8 a[0]; ; .global .b128 b;", {"a": ("global", "b8", 1, 0, "", [], False, 4), "b": ("global", "b128", 16, 16, "", [], False, 4)}),
        (
            ".global .b32 a; .global .b64 b[] = {7, a, generic(a), a+4, a-4, generic(b)+2147483648};",
            {
                "a": ("global", "b32", 4, 4, "", [], False, 4),
                "b": (
                    "global", "b64", 8, 48, "07" + 47 * "00",
                    [(8, 8, "a", 0, False), (16, 8, "a", 0, True), (24, 8, "a", 4, False), (32, 8, "a", -4, False), (40, 8, "b", 2**31, True)], False, 4,
                ),
            },
        ),
    ],
)  # fmt: skip
def test_a_variable_has_the_bytes_that_its_declaration_says(text, expected):
    assert variables(text) == expected


def test_the_bytes_of_every_type():
    sizes = {
        1: "b8 u8 s8 pred", 2: "b16 u16 s16 f16 bf16", 4: "b32 u32 s32 f32 f16x2 bf16x2", 8: "b64 u64 s64 f64", 16: "b128",
    }  # fmt: skip
    said = {name: size for size, names in sizes.items() for name in names.split()}
    assert said == parser.TYPE_BYTES
    for name, size in said.items():
        assert variables(f".global .{name} a[3];")["a"][2:4] == (size, 3 * size)
        function = body(f".reg .{name} %x; op %x;")
        assert shown(function.statements[0].operands[0]) == f"%x.{name}#6"
    classes = {name: parser.width_class(name) for name in ("pred", "b8", "bf16", "f16x2", "s64", "b128")}
    assert classes == {"pred": "pred", "b8": "b16", "bf16": "b16", "f16x2": "b32", "s64": "b64", "b128": "b128"}


def test_parameters_results_and_variables_of_a_function():
    module = parse(f"""{HEAD}
.visible .func (.param .align 8 .b8 r[16]) f(.param .b32 x, .param .u64 .ptr .global .align 16 y) .noreturn {{
    .local .align 4 .b8 depot[12]; .shared .b32 s; .param .b64 p;
    op r, x, [y+1], depot, s, p;
}}
.entry k(.param .b64 .ptr z, .param .align 4 .b8 w[2][3], .param .u64 .ptr .align 16 v) .maxntid 64, 2, 1 .reqntid 8 .minnctapersm 1 .maxnctapersm 2 .maxnreg 255
    .reqnctapercluster 2, 1, 1 .maxclusterrank 8 .explicitcluster .blocksareclusters .pragma "x"; {{ ret; }}
""")
    f, k = module.functions["f"], module.functions["k"]

    def described(found):
        return [(one.name, one.space, one.type, one.align, one.size) for one in found]

    assert (f.name, f.entry, f.line, k.name, k.entry, k.line) == ("f", False, 5, "k", True, 9)
    assert described(f.results) == [("r", "param", "b8", 8, 16)]
    assert described(f.parameters) == [("x", "param", "b32", 4, 4), ("y", "param", "u64", 8, 8)]
    assert described(f.variables) == [("depot", "local", "b8", 4, 12), ("s", "shared", "b32", 4, 4), ("p", "param", "b64", 8, 8)]
    assert [*map(shown, f.statements[0].operands)] == [
        "variable r", "variable x", ["at", "variable y", 1], "variable depot", "variable s", "variable p",
    ]  # fmt: skip
    assert all(one.function is f for one in (*f.results, *f.parameters, *f.variables))
    assert f.directives == {"noreturn": True} and described(k.parameters) == [
        ("z", "param", "b64", 8, 8),
        ("w", "param", "b8", 4, 6),
        ("v", "param", "u64", 8, 8),
    ]
    assert k.directives == {
        "maxntid": [64, 2, 1], "reqntid": [8], "minnctapersm": [1], "maxnctapersm": [2], "maxnreg": [255], "reqnctapercluster": [2, 1, 1],
        "maxclusterrank": [8], "explicitcluster": True, "blocksareclusters": True,
    }  # fmt: skip


def test_a_declaration_an_alias_and_the_body_are_one_function():
    module = parse(f"""{HEAD}
.extern .func (.param .b32 r) vprintf(.param .b64 a);
.func later(.param .b32 x);
.func caller() {{ .param .b32 r; call later, (1); call (r), vprintf, (2); ret; }}
.func later(.param .b32 y) .noreturn {{ op y; }}
.func later(.param .b32 z);
.alias other, later;
""")
    functions = module.functions
    first, second, _ = functions["caller"].statements
    assert first.operands[0] is functions["later"] and second.operands[1] is functions["vprintf"]
    later = functions["later"]
    assert functions["other"] is later and later.line == 8 and later.directives == {"noreturn": True}
    assert [one.name for one in later.parameters] == ["y"] and later.parameters[0].function is later
    assert functions["vprintf"].statements is None


def test_what_says_nothing_about_the_program_is_passed_over():
    module = parse(
        """.version 8.7 // a comment with "quotes
.target sm_100a, texmode_independent, debug
.address_size 64
.section .debug_info { .b8 1; { L: .b32 2 } .b8 3 }
/* a comment
   over lines */
.pragma "nounroll";
.file 3 "dir/x y.cu", 1700000000, 42
.loc 3 1 1
;
.func .attribute(.managed) f() { ret; }
"""
    )
    assert (module.version, module.target, module.files, list(module.functions)) == ("8.7", "sm_100a", {3: "dir/x y.cu"}, ["f"])
    assert module.functions["f"].line == 11


REFUSED = {
    ".version 9.0": "PTX line 1: a .target is missing",
    ".version 9.0\n.target sm_9000": "PTX line 2: the target 'sm_9000' is not covered",
    ".address_size\n 32": "PTX line 2: only .address_size 64 is covered",
    ".address_size x": "PTX line 1: expected a number, found 'x'",
    "\n\nmov": "PTX line 3: unexpected 'mov' at module level",
    "\n`": "PTX line 2: unexpected text '`'",
    '/* two\nlines */ .file 1 "\x1b"': "PTX line 2: a text with characters that no terminal prints",
    ".alias a b;": "PTX line 1: expected ',', found 'b'",
    ".alias a,\n b;": "PTX line 2: a is to be another name of b, which is not declared",
    ".func f() { ret; } .alias a, f\n.target": "PTX line 2: expected ';', found '.target'",
    ".loc 1 2 3, label x": "PTX line 1: unexpected 'label' in .loc",
    ".global\n.align 3 .b8 a;": "PTX line 2: .align 3 is no power of two up to 1,048,576",
    ".global .align 2097152 .b8 a;": "PTX line 1: .align 2097152 is no power of two up to 1,048,576",
    ".global .b8 a\n b;": "PTX line 2: expected ';', found 'b'",
    ".global a;": "PTX line 1: a .global declaration needs a type",
    ".global .attribute .b8 a;": "PTX line 1: expected '(', found '.b8'",
    ".global .b8\n 7;": "PTX line 2: expected a variable's name, found '7'",
    ".global .b8 a[-1];": "PTX line 1: a has -1 bytes, expected 0 to 67,108,864",
    ".global .b8\n a[67108865];": "PTX line 2: a has 67,108,865 bytes, expected 0 to 67,108,864",
    ".global .b32 a[4 = 1;": "PTX line 1: expected ']', found '='",
    ".global .b8 a[1] = {1, 2};": "PTX line 1: a has 1 bytes and an initialiser of 2",
    ".global .b64 a =\n mask(0xff)(b);": "PTX line 2: mask() in an initialiser is not covered",
    ".global .b64 a = generic b;": "PTX line 1: expected '(', found 'b'",
    ".global .b64 a = generic(b;": "PTX line 1: expected ')', found ';'",
    ".global .b64 a =\n a+4294967296;": "PTX line 2: the address of 'a' in an initialiser is not covered",
    ".global .b64 a = a-2147483649;": "PTX line 1: the address of 'a' in an initialiser is not covered",
    ".global .b128 a = a;": "PTX line 1: the address of 'a' in an initialiser is not covered",
    ".global .b64 a =\n.b8;": "PTX line 2: unexpected '.b8' in an initialiser",
    ".target sm_90 .global .b64 a =\n b;": "PTX line 2: 'b', whose address is taken in an initialiser, is no variable and no function",
    ".entry k(.reg .b32 x) { }": "PTX line 1: function parameters in registers are not covered",
    ".entry k(\n.b32 x) { }": "PTX line 2: expected a parameter in .param, found '.b32'",
    ".entry k(.param .b8 x[]) { }": "PTX line 1: x in .param memory has no size",
    ".entry k() .maxntid 0 { }": "PTX line 1: .maxntid takes up to 3 positive numbers",
    ".entry k()\n.maxntid 1, 1, 1,\n1 { }": "PTX line 2: .maxntid takes up to 3 positive numbers",
    ".entry k() .maxnreg 1, 1 { }": "PTX line 1: .maxnreg takes up to 1 positive numbers",
    ".entry k() .minnctapersm 1, 1 { }": "PTX line 1: .minnctapersm takes up to 1 positive numbers",
    ".entry k() .maxnctapersm 1, 1 { }": "PTX line 1: .maxnctapersm takes up to 1 positive numbers",
    ".entry k() .maxclusterrank 1, 1 { }": "PTX line 1: .maxclusterrank takes up to 1 positive numbers",
    ".entry k() .reqntid 1, 2, 3, 4 { }": "PTX line 1: .reqntid takes up to 3 positive numbers",
    ".entry k() .reqnctapercluster 1, 2, 3, 4 { }": "PTX line 1: .reqnctapercluster takes up to 3 positive numbers",
    ".entry k() .maxnreg 2147483648 { }": "PTX line 1: .maxnreg takes up to 1 positive numbers",
    ".entry k()\n.scale 2 { }": "PTX line 2: the directive '.scale' of k is not covered",
}  # fmt: skip

REFUSED_IN_A_BODY = {
    ".reg .b33 %x;": "a register of type .b33 is not covered",
    ".reg %x;": "a register of type .None is not covered",
    ".reg .v2 .b32 %x;": "vector registers (.reg .v2, .v4) are not covered",
    ".reg .v4 .b32 %x;": "vector registers (.reg .v2, .v4) are not covered",
    ".reg .b32 %x<-1>;": "-1 registers %x, at most 131,072 are covered",
    ".reg .b32 %x<3;": "expected '>', found ';'",
    ".reg .b32 %x %y;": "expected ';', found '%y'",
    ".local .b8 a[];": "a in .local memory has no size",
    ".file 1;": ".file inside a function is not covered",
    ".section .x { }": ".section inside a function is not covered",
    ".maxnreg 1;": "the directive .maxnreg is not covered",
    "7;": "unexpected '7' in k",
    "L: .branchtargets A B;": "expected ';', found 'B'",
    "T: .branchtargets A;": "'A' is not declared",
    "@%p 7;": "expected an instruction, found '7'",
    "op %a %b;": "unexpected '%b' after an operand of op",
    "op %a, .b32;": "unexpected '.b32' as an operand",
    "op %undeclared;": "'%undeclared' is not declared",
    "op %tidy;": "'%tidy' is not declared",
    "@%undeclared op;": "'%undeclared' is not declared",
    "op -%a;": "expected a number, found '%a'",
    "op [%a+4294967296];": "the offset 4294967296 of an address has more than 32 bits",
    "op [%a+4294967295+1];": "the offset 4294967296 of an address has more than 32 bits",
    "op [%a-2147483649];": "the offset -2147483649 of an address has more than 32 bits",
    "op %a[4294967296];": "the offset 4294967296 of an address has more than 32 bits",
    "op %a[-2147483649];": "the offset -2147483649 of an address has more than 32 bits",
    "op %a[4;": "expected ']', found ';'",
    "op [%a, {1}, 2;": "expected ']', found ';'",
    "op [%a;": "expected ']', found ';'",
    "op {%a %b};": "expected '}', found '%b'",
    "op (%a, %b};": "expected ')', found '}'",
    "op _[4];": "unexpected '[' after an operand of op",
    "op _+4;": "unexpected '+' after an operand of op",
    "op 09;": "expected an integer, found '09'",
    "op 1/0;": "1 / 0 is no number",
    "op 1<<64;": "1 << 64 is no number",
    "op 1>>-1;": "1 >> -1 is no number",
    "op 1<2;": "expected '<', found '2'",
    "op 1+;": "expected a number, found ';'",
    "op (1;": "expected ')', found ';'",
    "op 1*%a;": "expected a number, found '%a'",
    "op 1.5*2;": "unexpected '*' after an operand of op",
    "op 0x10000000000000000;": "a number of more than 64 bits, '0x10000000000000000'",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_module_is_refused_at_its_line(text):
    with pytest.raises(ParseError) as refusal:
        parse(text)
    assert str(refusal.value) == REFUSED[text]


@pytest.mark.parametrize("text", REFUSED_IN_A_BODY)
def test_what_is_no_function_is_refused_at_its_line(text):
    with pytest.raises(ParseError) as refusal:
        body(text)
    assert str(refusal.value) == f"PTX line 5: {REFUSED_IN_A_BODY[text]}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (".entry k() {\n", "PTX line 2: the text ends inside k"),
        (".entry k() {\n@", "PTX line 2: the text ends in the middle of something"),
        (".section .x {\n{ }", "PTX line 2: the text ends in the middle of something"),
        (".pragma x\n", "PTX line 2: the text ends in the middle of something"),
    ],
)
def test_a_text_that_ends_too_soon_is_refused_at_its_last_line(text, words):
    with pytest.raises(ParseError) as refusal:
        parse(text)
    assert str(refusal.value) == words


def nested(count, opening, inside, closing):
    return opening * count + inside + closing * count


AT_THE_EDGE = [
    ("MOST_CHARACTERS", 100, lambda n: f"{HEAD}//".ljust(n), "PTX line 0: the text has 101 characters, at most 100 are read"),
    ("MOST_TOKENS", 16, lambda n: HEAD + ";" * (n - 6), "PTX line 4: there are more than 16 words"),
    ("MOST_REGISTERS", 9, lambda n: f"{HEAD}.entry k() {{ .reg .b32 %a<5>, %b<{n - 5}>; }}", "PTX line 4: more than 9 registers are not covered"),
    ("MOST_REGISTERS", 9, lambda n: f"{HEAD}.entry k() {{ .reg .b32 %a<{n}>; }}", "PTX line 4: 10 registers %a, at most 9 are covered"),
    ("MOST_STATEMENTS", 3, lambda n: f"{HEAD}.entry k() {{ {'op;' * n} }}", "PTX line 4: more than 3 instructions are not covered"),
    ("MOST_BYTES", 50, lambda n: f"{HEAD}.global .b8 a[{n}];", "PTX line 4: a has 51 bytes, expected 0 to 50"),
    ("MOST_BYTES", 50, lambda n: f"{HEAD}.global .b8 a[45], b[], c[{n - 45}];", "PTX line 4: the variables have more than 50 bytes together"),
    ("MOST_RELOCATIONS", 2, lambda n: f"{HEAD}.global .b64 a[] = {{{', '.join('a' * n)}}};",
     "PTX line 4: the address of 'a' in an initialiser is not covered"),
    ("DEEPEST", 4, lambda n: f"{HEAD}.entry k() {{ {nested(n, '{', '', '}')} }}", "PTX line 4: nested more than 4 deep"),
    ("DEEPEST", 4, lambda n: f"{HEAD}.entry k() {{ op {nested(n, '{', '1', '}')}; }}", "PTX line 4: nested more than 4 deep"),
    ("DEEPEST", 4, lambda n: f"{HEAD}.entry k() {{ op {nested(n, '(', '1', ')')}; }}", "PTX line 4: nested more than 4 deep"),
    ("DEEPEST", 4, lambda n: f"{HEAD}.entry k() {{ op {nested(n, '!', '1', '')}; }}", "PTX line 4: nested more than 4 deep"),
    ("DEEPEST", 4, lambda n: f"{HEAD}.entry k() {{ op {nested(n, '[1, ', '1', ']')}; }}", "PTX line 4: nested more than 4 deep"),
    ("DEEPEST", 4, lambda n: f"{HEAD}.entry k() {{ op {nested(n, '[1, 1, ', '1', ']')}; }}", "PTX line 4: nested more than 4 deep"),
    ("DEEPEST", 4, lambda n: f"{HEAD}.global .b8 a[] = {nested(n, '{', '1', '}')};", "PTX line 4: nested more than 4 deep"),
]  # fmt: skip


@pytest.mark.parametrize(("limit", "most", "text", "words"), AT_THE_EDGE)
def test_a_limit_takes_what_it_says_and_one_more_is_refused(monkeypatch, limit, most, text, words):
    monkeypatch.setattr(parser, limit, most)
    parse(text(most))
    with pytest.raises(ParseError) as refusal:
        parse(text(most + 1))
    assert str(refusal.value) == words


def test_the_limits_are_those_that_the_largest_kernels_are_far_from():
    assert (parser.MOST_CHARACTERS, parser.MOST_TOKENS, parser.MOST_REGISTERS, parser.MOST_STATEMENTS) == (2**22, 2**20, 2**17, 2**16)
    assert (parser.MOST_BYTES, parser.MOST_RELOCATIONS, parser.LARGEST_ALIGNMENT, parser.DEEPEST) == (2**26, 2**12, 2**20, 64)
    assert variables(f".global .align {2**20} .b8 a;")["a"][2] == 2**20
    parse(f"{HEAD}.entry k() .maxnreg {2**31 - 1} {{ .reg .b32 %none<0>; }}")


@pytest.mark.parametrize(
    "opcode", ["cp.async.bulk.commit_group ;", "fence .proxy.async\n.global;", "add .f32 %a, %a, %a;", "mov.u32 %a, 1;"]
)
def test_spaces_may_precede_a_modifier(opcode):
    """Inline assembly of other projects has such spaces, and ptxas reads them."""
    (statement,) = parse(f"{HEAD}.entry k() {{ .reg .b32 %a; {opcode} }}").functions["k"].statements
    wanted = {"c": "cp.async.bulk.commit_group", "f": "fence.proxy.async.global", "a": "add.f32", "m": "mov.u32"}
    assert statement.opcode == wanted[opcode[0]]
