"""PTX text to a module of variables and functions: syntax, scopes and names only. What an instruction means is in instructions/.

Registers, labels and variables are resolved by scope here (inline assembly opens scopes with its own registers and labels),
so a statement's operands hold objects, not names.

A text may come from anyone: whatever it says, parsing it ends in a module or in ParseError, in time and memory that the limits below
bound. Kernels of some 5,000 instructions and 18,000 registers are the largest known.
"""

import re
import struct

from .errors import ParseError

TYPE_BYTES = {
    "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4, "s32": 4, "f32": 4,
    "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16, "pred": 1,
}  # fmt: skip


_REFERENCES = (".texref", ".surfref", ".samplerref")  # whose declaration names no storage


def width_class(type):
    """The storage class of a register of this declared type."""
    return "pred" if type == "pred" else f"b{8 * max(TYPE_BYTES[type], 2)}"


MOST_CHARACTERS = 1 << 22  # that are read
MOST_PASSED_OVER = 1 << 26  # characters of a text of which one entry is read
MOST_TOKENS = 1 << 20
MOST_REGISTERS = 1 << 17  # of all functions together
MOST_STATEMENTS = 1 << 16
MOST_BYTES = 1 << 26  # of all variables together
MOST_RELOCATIONS = 4096
LARGEST_ALIGNMENT = 1 << 20
DEEPEST = 64  # blocks in blocks, lists in lists
MOST_CALLERS = 16  # that are remembered of inlined code


class Register:
    """One virtual register."""

    __slots__ = ("name", "type", "number", "function")

    def __init__(self, name, type, number, function):
        self.name, self.type, self.number, self.function = name, type, number, function

    def __repr__(self):
        return self.name


class Special:
    """A special register such as %tid.x."""

    __slots__ = ("name",)

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return self.name


class Immediate:
    """A literal. `form` is 'int', 'f32' or 'f64'; value is the integer, or the bits of the float."""

    __slots__ = ("value", "form")

    def __init__(self, value, form="int"):
        self.value, self.form = value, form

    def __repr__(self):
        return f"{self.value:#x}" if self.form != "int" else str(self.value)


class Vector:
    __slots__ = ("items",)

    def __init__(self, items):
        self.items = items

    def __repr__(self):
        return "{" + ", ".join(map(repr, self.items)) + "}"


class Group:
    """A parenthesised list: the arguments or results of a call."""

    __slots__ = ("items",)

    def __init__(self, items):
        self.items = items


class Address:
    """[base + offset]; base is a Register, a Variable or None for an absolute address."""

    __slots__ = ("base", "offset")

    def __init__(self, base, offset):
        self.base, self.offset = base, offset

    def __repr__(self):
        return f"[{self.base!r}+{self.offset}]"


class TensorAddress:
    """[map, {coordinates}], with whatever else the brackets hold (im2col offsets) in `rest`."""

    __slots__ = ("map", "coordinates", "rest")

    def __init__(self, map, coordinates, rest):
        self.map, self.coordinates, self.rest = map, coordinates, rest


class Negated:
    __slots__ = ("operand",)

    def __init__(self, operand):
        self.operand = operand


class PredicatePair:
    """first|second."""

    __slots__ = ("first", "second")

    def __init__(self, first, second):
        self.first, self.second = first, second


class _Sink:
    def __repr__(self):
        return "_"


SINK = _Sink()


class Label:
    """A place in a function: the index of the statement it stands before. `targets` is set for lists of .branchtargets and .calltargets,
    `prototype` for a .callprototype: its (results, parameters)."""

    __slots__ = ("name", "position", "targets", "function", "prototype")

    def __init__(self, name, position, function):
        self.name, self.position, self.function = name, position, function
        self.targets = self.prototype = None

    def __repr__(self):
        return self.name


class Variable:
    """A declared variable of any state space. `size` is None for `name[]` (dynamic shared memory)."""

    __slots__ = ("name", "space", "align", "size", "data", "relocations", "line", "external", "function", "type")

    def __init__(self, name, space, align, size, line, function=None, type=None):
        self.name, self.space, self.align, self.size, self.line, self.function = name, space, align, size, line, function
        self.data = b""
        self.relocations = []  # (offset, bytes, symbol name, addend, generic)
        self.external = False
        self.type = type

    def __repr__(self):
        return self.name


class Statement:
    """One instruction: guard (Register or Negated or None), opcode with modifiers, operands, place. `source` is (file number, line),
    `callers` where the code was inlined, innermost first."""

    __slots__ = ("guard", "opcode", "operands", "line", "source", "text", "callers")

    def __init__(self, guard, opcode, operands, line, source, text, callers=()):
        self.guard, self.opcode, self.operands = guard, opcode, operands
        self.line, self.source, self.text, self.callers = line, source, text, callers


class Function:
    """An .entry or .func; `statements` is None for a declaration without a body."""

    def __init__(self, name, entry, line):
        self.name, self.entry, self.line = name, entry, line
        self.parameters, self.results = [], []
        self.registers, self.variables = [], []
        self.statements = None
        self.unread = None  # (start, end, line) of a body that has not been read
        self.directives = {}

    @property
    def has_body(self):
        return self.statements is not None or self.unread is not None

    def dismantle(self):
        """Undoes the circles between it and what it declares: see Program.dismantle."""
        self.__dict__.clear()

    def __repr__(self):
        return self.name


_TOKEN = re.compile(
    r"""(?:(?P<name>[A-Za-z_$%][\w$]*(?:(?:\.|::)[\w$]+)*)
      | (?P<punct>[-+{}()\[\]<>,;:|!@=~*?&^]|/(?![*/]))
      | (?P<number>0[fF][0-9a-fA-F]{8}(?![\w$])|0[dD][0-9a-fA-F]{16}(?![\w$])|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?(?![\w$])|\d+\.\d+(?:[eE][-+]?\d+)?|\d+U?(?![\w$]))
      | (?P<directive>\.[A-Za-z_][\w$]*(?:::[\w$]+)*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<space>[ \t\r\n]+|//[^\n]*|/\*.*?\*/)
      | (?P<other>.)  # a comment without an end, too
      )[ \t]*""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|n?clusterid|cluster_n?ctaid|(?:laneid|n?warpid|n?smid|gridid|clock(?:64|_hi)?|globaltimer(?:_lo|_hi)?|lanemask_(?:eq|lt|le|gt|ge)"
    r"|cluster_n?ctarank|is_explicit_cluster|dynamic_smem_size|total_smem_size|aggr_smem_size|envreg\d+|pm\d+|current_graph_exec|reserved_smem_offset_\w+))(?:\.[xyzw])?$"
)


_BRACES = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\]|\\.)*\"|[{}]", re.DOTALL)


def _end_of_body(text, start, line):
    """Where the body that begins at `start` ends, behind its last brace."""
    depth = 0
    for match in _BRACES.finditer(text, start):
        brace = match.group()
        if brace == "{":
            depth += 1
        elif brace == "}":
            depth -= 1
            if depth == 0:
                return match.end()
    raise ParseError(line, "the text ends in the middle of a function")


def _outline(text):
    """The tokens outside of functions' bodies. A body is one token: its text is the position of its end."""
    if len(text) > MOST_PASSED_OVER:
        raise ParseError(0, f"the text has {len(text):,} characters, at most {MOST_PASSED_OVER:,} are looked at")
    tokens, start, line = [], 0, 1
    while True:
        header = False
        for token in _tokens(text, start, len(text), line):
            if token[1] in (".entry", ".func"):
                header = True
            elif token[1] == ";":
                header = False
            elif token[1] == "{" and header:
                break
            tokens.append(token)
            if len(tokens) > MOST_TOKENS:
                raise ParseError(token[2], f"there are more than {MOST_TOKENS:,} words")
        else:
            return tokens
        _, _, line, start = token
        end = _end_of_body(text, start, line)
        tokens.append(("body", end, line, start))
        line += text.count("\n", start, end)
        start = end


def _tokenise(text):
    if len(text) > MOST_CHARACTERS:
        raise ParseError(0, f"the text has {len(text):,} characters, at most {MOST_CHARACTERS:,} are read")
    tokens = []
    for token in _tokens(text, 0, len(text), 1):
        tokens.append(token)
        if len(tokens) > MOST_TOKENS + 1:
            raise ParseError(token[2], f"there are more than {MOST_TOKENS:,} words")
    return tokens


def _tokens(text, start, stop, line):
    """(kind, text, line, position) of each word of a part of the text, and one that says that it ends."""
    end = start
    for match in _TOKEN.finditer(text, start, stop):
        kind = match.lastgroup
        if kind == "space":
            line += match.group().count("\n")
        else:
            if kind == "other":
                raise ParseError(line, f"unexpected text {text[end : end + 30]!r}")
            found = match[kind]
            if kind == "string" and not found.isprintable():
                raise ParseError(line, "a text with characters that no terminal prints")
            yield kind, found, line, end
        end = match.end()
    yield "end", "", line, end


class _Scope:
    __slots__ = ("parent", "names", "labels", "depth")

    def __init__(self, parent):
        self.parent, self.names, self.labels = parent, {}, {}
        self.depth = 0 if parent is None else parent.depth + 1


class Name:
    """An unresolved identifier with the scope it was read in; parse() replaces every one."""

    __slots__ = ("text", "scope", "line")

    def __init__(self, text, scope, line):
        self.text, self.scope, self.line = text, scope, line


_TARGET = re.compile(r"sm_\d{2,3}[af]?")
_OFFSETS = range(-(1 << 31), 1 << 32)  # what may be added to an address
# the operators between integers, loosest first; < and > come twice
_LEVELS = (("|",), ("^",), ("&",), ("<", ">"), ("+", "-"), ("*", "/"))
_OPERATORS = {operator for operators in _LEVELS for operator in operators}
_PRODUCTS = 5
_ALIGNMENTS = frozenset(1 << power for power in range(LARGEST_ALIGNMENT.bit_length()))
_LINKAGE = (".visible", ".extern", ".weak", ".common")
_PERFORMANCE = {
    ".maxntid": 3, ".reqntid": 3, ".minnctapersm": 1, ".maxnctapersm": 1, ".maxnreg": 1, ".reqnctapercluster": 3, ".maxclusterrank": 1,
}  # fmt: skip


class _Parser:
    def __init__(self, text, whole=True):
        self.text = text
        self.tokens = _tokenise(text) if whole else _outline(text)
        self.at = 0
        self.version = self.target = None
        self.variables, self.functions, self.files = {}, {}, {}
        self.module_scope = _Scope(None)
        self.register_count = self.statement_count = self.bytes = 0
        self.relocations = []
        self.source, self.callers = None, ()
        self.places = {}  # (file, line, column) of a .loc -> where its code was inlined, innermost first

    # ---- tokens
    def peek(self):
        return self.tokens[self.at][1]

    def line(self):
        return self.tokens[self.at][2]

    def next(self):
        token = self.tokens[self.at]
        if token[0] == "end":
            raise ParseError(token[2], "the text ends in the middle of something")
        self.at += 1
        return token

    def accept(self, text):
        if self.tokens[self.at][1] == text:
            self.at += 1
            return True
        return False

    def expect(self, text):
        _kind, found, line, _ = self.next()
        if found != text:
            raise ParseError(line, f"expected {text!r}, found {found!r}")

    def fail(self, message):
        raise ParseError(self.line(), message)

    def integer(self):
        negative = self.accept("-")
        kind, found, line, _ = self.next()
        if kind != "number":
            raise ParseError(line, f"expected a number, found {found!r}")
        value = _integer(found, line)
        return -value if negative else value

    def nested(self, depth):
        if depth > DEEPEST:
            self.fail(f"nested more than {DEEPEST} deep")
        return depth

    def skip_statement(self):
        while self.next()[1] != ";":
            pass

    # ---- module level
    def module(self):
        while self.tokens[self.at][0] != "end":
            text = self.peek()
            if text == ".version":
                self.next()
                self.version = self.next()[1]
            elif text == ".target":
                self.next()
                self.target = self.next()[1]
                if not _TARGET.fullmatch(self.target):
                    self.fail(f"the target {self.target!r} is not covered")
                while self.accept(","):
                    self.next()
            elif text == ".address_size":
                self.next()
                if self.integer() != 64:
                    self.fail("only .address_size 64 is covered")
            elif text == ".file":
                self.next()
                number = self.integer()
                self.files[number] = self.next()[1][1:-1]
                while self.accept(","):
                    self.next()
            elif text == ".section":
                self.section()
            elif text == ".loc":
                self.location()
            elif text == ".pragma":
                self.skip_statement()
            elif text == ".alias":
                self.next()
                alias = self.next()[1]
                self.expect(",")
                known = self.next()[1]
                if known not in self.functions:
                    self.fail(f"{alias} is to be another name of {known}, which is not declared")
                self.functions[alias] = self.functions[known]
                self.expect(";")
            elif text in _LINKAGE or text in (".entry", ".func", ".global", ".const", ".shared", ".managed"):
                external = False
                while self.peek() in _LINKAGE:
                    external |= self.next()[1] == ".extern"
                if self.peek() in (".entry", ".func"):
                    self.function()
                else:
                    for variable in self.variable_declaration(None):
                        variable.external = external
                        self.variables[variable.name] = variable
                        self.module_scope.names[variable.name] = variable
            elif text == ";":
                self.next()
            else:
                self.fail(f"unexpected {text!r} at module level")
        if self.target is None:
            self.fail("a .target is missing")
        for name, line in self.relocations:
            if name not in self.variables and name not in self.functions:
                raise ParseError(line, f"{name!r}, whose address is taken in an initialiser, is no variable and no function")
        if self.version is None:
            self.fail("a .version is missing")
        self.tokens = []

    def section(self):
        self.next()
        while self.peek() != "{":
            self.next()
        depth = 0
        while True:
            text = self.next()[1]
            depth += (text == "{") - (text == "}")
            if depth == 0:
                return

    def location(self):
        """.loc file line column {, function_name label {+ n}, inlined_at file line column}; the last place is that of an earlier .loc"""
        self.next()
        place, callers = (self.integer(), self.integer(), self.integer()), ()
        while self.accept(","):
            word = self.next()[1]
            if word == "function_name":
                self.next()
                if self.accept("+"):
                    self.integer()
            elif word == "inlined_at":
                caller = (self.integer(), self.integer(), self.integer())
                callers = (caller[:2], *self.places.get(caller, ()))[:MOST_CALLERS]
            else:
                self.fail(f"unexpected {word!r} in .loc")
        self.places[place] = callers
        self.source, self.callers = place[:2], callers

    # ---- variables
    def variable_declaration(self, function):
        """`.space {.align n} {.vN} .type name{[n]..} {= init} {, name...} ;` without linkage. Registers are handled elsewhere."""
        space = self.next()[1][1:]
        align, width, lanes, type = None, None, 1, None
        while True:
            kind, text, line, _ = self.tokens[self.at]
            if text == ".align":
                self.next()
                align = self.integer()
                if align not in _ALIGNMENTS:
                    self.fail(f".align {align} is no power of two up to {LARGEST_ALIGNMENT:,}")
            elif text in (".v2", ".v4", ".v8"):
                self.next()
                lanes = int(text[2:])
            elif text == ".attribute":
                self.next()
                self.expect("(")
                while not self.accept(")"):
                    self.next()
            elif text in (".ptr", ".global", ".shared", ".const", ".local", ".noalias") and kind == "directive":
                self.next()  # `.ptr .space .align n` of a parameter says nothing about its storage
                while text == ".ptr" and self.peek() in (".global", ".shared", ".const", ".local", ".align"):
                    if self.next()[1] == ".align":
                        self.integer()
            elif kind == "directive" and (text[1:] in TYPE_BYTES or text in _REFERENCES):
                self.next()
                type = text[1:]
                width = TYPE_BYTES.get(type, 8)  # a reference is as long as the handle that it stands for
            else:
                break
        if width is None:
            self.fail(f"a .{space} declaration needs a type")
        found = []
        while True:
            kind, name, line, _ = self.next()
            if kind != "name":
                raise ParseError(line, f"expected a variable's name, found {name!r}")
            size = width * lanes
            dimensions = []
            while self.accept("["):
                dimensions.append(None if self.peek() == "]" else self.integer())
                self.expect("]")
            for extent in dimensions:
                size = None if extent is None or size is None else size * extent
                if size is not None and not 0 <= size <= MOST_BYTES:
                    raise ParseError(line, f"{name} has {size:,} bytes, expected 0 to {MOST_BYTES:,}")
            if size is None and space not in ("shared", "global", "const") and not (space == "param" and function is None):
                raise ParseError(line, f"{name} in .{space} memory has no size")
            variable = Variable(name, space, align or width * lanes, size, line, function, type)
            if self.accept("="):
                if f".{type}" in _REFERENCES:
                    self.fail(f"settings of the .{type} {name} are not covered: the texture object has them")
                self.initialiser(variable, width)
                if variable.size is None:
                    variable.size = len(variable.data)
                if len(variable.data) > variable.size:
                    raise ParseError(line, f"{name} has {variable.size} bytes and an initialiser of {len(variable.data)}")
            self.bytes += variable.size or 0
            if self.bytes > MOST_BYTES:
                raise ParseError(line, f"the variables have more than {MOST_BYTES:,} bytes together")
            found.append(variable)
            if not self.accept(","):
                break
        self.expect(";")
        return found

    def initialiser(self, variable, width):
        data = bytearray()

        def value(depth):
            if self.accept("{"):
                while not self.accept("}"):
                    value(self.nested(depth + 1))
                    self.accept(",")
                return
            kind, text, line, _ = self.tokens[self.at]
            if kind == "name":
                self.next()
                generic = text == "generic"
                if generic:
                    self.expect("(")
                    text = self.next()[1]
                    self.expect(")")
                elif text == "mask":
                    raise ParseError(line, "mask() in an initialiser is not covered")
                addend = 0
                if self.peek() in ("+", "-"):
                    addend = self.integer() if self.peek() == "-" else (self.next(), self.integer())[1]
                if width > 8 or addend not in _OFFSETS or len(self.relocations) >= MOST_RELOCATIONS:
                    raise ParseError(line, f"the address of {text!r} in an initialiser is not covered")
                self.relocations.append((text, line))
                variable.relocations.append((len(data), width, text, addend, generic))
                data.extend(bytes(width))
                return
            negative = self.accept("-")
            kind, text, line, _ = self.next()
            if kind != "number":
                raise ParseError(line, f"unexpected {text!r} in an initialiser")
            if text[:2] in ("0f", "0F", "0d", "0D"):
                bits = int(text[2:], 16)
                if width == 8 and text[1] in "fF":
                    bits = struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", struct.pack("<I", bits))[0]))[0]
                number = bits ^ (negative << (width * 8 - 1))
            else:
                number = -_integer(text, line) if negative else _integer(text, line)
            data.extend((number & ((1 << width * 8) - 1)).to_bytes(width, "little"))

        value(0)
        variable.data = bytes(data)

    # ---- functions
    def function(self):
        line = self.line()
        entry = self.next()[1] == ".entry"
        results = []
        if self.peek() == ".attribute":
            self.next()
            while self.next()[1] != ")":
                pass
        if not entry and self.accept("("):
            results = self.parameters()
        name = self.next()[1]
        function = Function(name, entry, line)
        function.results = results
        if self.accept("("):
            function.parameters = self.parameters()
        while self.peek() not in ("{", ";") and self.tokens[self.at][0] != "body":
            _kind, text, line, _ = self.next()
            if text in _PERFORMANCE:
                values = [self.integer()]
                while self.accept(","):
                    values.append(self.integer())
                if len(values) > _PERFORMANCE[text] or any(not 1 <= value < 1 << 31 for value in values):
                    raise ParseError(line, f"{text} takes up to {_PERFORMANCE[text]} positive numbers")
                function.directives[text[1:]] = values
            elif text in (".explicitcluster", ".noreturn", ".blocksareclusters"):
                function.directives[text[1:]] = True
            elif text == ".pragma":
                self.next()
                self.accept(";")
            else:
                raise ParseError(line, f"the directive {text!r} of {name} is not covered")
        for variable in function.parameters + function.results:
            variable.function = function
            if variable.size is None and (entry or variable not in function.parameters[-1:]):
                raise ParseError(variable.line, f"{variable.name} in .param memory has no size")
        if self.accept(";"):
            self.functions.setdefault(name, function)
            if name not in self.module_scope.names:
                self.module_scope.names[name] = self.functions[name]
            return
        # A declaration may have come first: keep its identity, so that calls already read resolve to the body.
        known = self.functions.get(name)
        if known is not None and known.statements is None:
            known.parameters, known.results, known.directives, known.line = (
                function.parameters,
                function.results,
                function.directives,
                function.line,
            )
            function = known
            for variable in function.parameters + function.results:
                variable.function = function
        self.functions[name] = function
        self.module_scope.names[name] = function
        if self.tokens[self.at][0] == "body":
            _, end, line, start = self.next()
            function.unread = (start, end, line)
        else:
            self.body(function)

    def read(self, function):
        """The body of a function of an outline, and the bodies of all that it calls."""
        waiting = [function]
        while waiting:
            function = waiting.pop()
            if function.unread is None:
                continue
            start, end, line = function.unread
            if end - start > MOST_CHARACTERS:
                raise ParseError(line, f"{function.name} has {end - start:,} characters, at most {MOST_CHARACTERS:,} are read")
            self.tokens, self.at = list(_tokens(self.text, start, end, line)), 0
            self.body(function)
            function.unread = None
            for statement in function.statements:
                if statement.opcode.split(".")[0] == "call":
                    waiting.extend(operand for operand in statement.operands if isinstance(operand, Function))

    def prototype(self):
        """(results, parameters) of `(.param .b32 _) _ (.param .b64 _, .param .b32 _) .noreturn;`"""
        results = self.parameters() if self.accept("(") else []
        self.expect("_")
        parameters = self.parameters() if self.accept("(") else []
        self.skip_statement()
        if any(variable.size is None for variable in (*results, *parameters[:-1])):
            self.fail("only the last parameter of a prototype may have no size")
        return results, parameters

    def parameters(self):
        found = []
        while not self.accept(")"):
            if self.peek() == ".reg":
                self.fail("function parameters in registers are not covered")
            if self.peek() != ".param":
                self.fail(f"expected a parameter in .param, found {self.peek()!r}")
            found.extend(self.parameter())
            self.accept(",")
        return found

    def parameter(self):
        """One parameter: variable_declaration would swallow the comma of the list."""
        saved = self.at
        depth = 0
        while True:
            text = self.tokens[self.at][1]
            if depth == 0 and text in (",", ")"):
                break
            depth += (text == "[") - (text == "]")
            self.next()
        end, self.at = self.at, saved
        stop = self.tokens[end]
        self.tokens[end] = ("punct", ";", *stop[2:])
        found = self.variable_declaration(None)
        self.tokens[end] = stop
        self.at = end
        return found

    def body(self, function):
        function.statements = []
        scope = _Scope(self.module_scope)
        for variable in function.parameters + function.results:
            scope.names[variable.name] = variable
        self.source, self.callers = None, ()
        self.expect("{")
        self.block(function, scope)
        for statement in function.statements:
            if statement.guard is not None:
                statement.guard = self.resolve(statement.guard)
            statement.operands = [self.resolve(operand) for operand in statement.operands]
        for label in self.lists:
            label.targets = [self.resolve(target) for target in label.targets]

    lists = ()

    def block(self, function, scope):
        if scope.parent is self.module_scope:
            self.lists = []
        while True:
            kind, text, line, _position = self.tokens[self.at]
            if text == "}":
                self.next()
                return
            if text == "{":
                self.next()
                self.nested(scope.depth)
                self.block(function, _Scope(scope))
            elif text == ";":
                self.next()
            elif kind == "directive":
                self.directive(function, scope, text)
            elif kind == "name" and self.tokens[self.at + 1][1] == ":":
                self.next()
                self.next()
                label = Label(text, len(function.statements), function)
                if scope.labels.setdefault(text, label) is not label:
                    self.fail(f"the label {text} is defined twice")
                if self.peek() in (".branchtargets", ".calltargets"):
                    self.next()
                    label.targets = []
                    while True:
                        label.targets.append(Name(self.next()[1], scope, line))
                        if not self.accept(","):
                            break
                    self.expect(";")
                    self.lists.append(label)
                elif self.peek() == ".callprototype":
                    self.next()
                    label.prototype = self.prototype()
            elif kind == "name" or text == "@":
                self.statement(function, scope)
            elif kind == "end":
                self.fail(f"the text ends inside {function.name}")
            else:
                self.fail(f"unexpected {text!r} in {function.name}")

    def directive(self, function, scope, text):
        if text == ".reg":
            self.next()
            type = None
            lanes = 1
            while self.tokens[self.at][0] == "directive":
                word = self.next()[1][1:]
                if word in ("v2", "v4"):
                    lanes = int(word[1:])
                else:
                    type = word
            if type not in TYPE_BYTES:
                self.fail(f"a register of type .{type} is not covered")
            if lanes != 1:
                self.fail("vector registers (.reg .v2, .v4) are not covered")
            while True:
                name = self.next()[1]
                if self.accept("<"):
                    count = self.integer()
                    self.expect(">")
                    if not 0 <= count <= MOST_REGISTERS:
                        self.fail(f"{count:,} registers {name}, at most {MOST_REGISTERS:,} are covered")
                    for number in range(count):
                        self.declare_register(function, scope, f"{name}{number}", type)
                else:
                    self.declare_register(function, scope, name, type)
                if not self.accept(","):
                    break
            self.expect(";")
        elif text == ".loc":
            self.location()
        elif text in (".local", ".shared", ".param", ".global", ".const"):
            for variable in self.variable_declaration(function):
                scope.names[variable.name] = variable
                function.variables.append(variable)
        elif text == ".pragma":
            self.skip_statement()
        elif text in (".file", ".section"):
            self.fail(f"{text} inside a function is not covered")
        else:
            self.fail(f"the directive {text} is not covered")

    def declare_register(self, function, scope, name, type):
        self.register_count += 1
        if self.register_count > MOST_REGISTERS:
            self.fail(f"more than {MOST_REGISTERS:,} registers are not covered")
        register = Register(name, type, len(function.registers), function)
        function.registers.append(register)
        scope.names[name] = register

    # ---- statements and operands
    def statement(self, function, scope):
        kind, text, line, start = self.tokens[self.at]
        guard = None
        if self.accept("@"):
            negated = self.accept("!")
            guard = Name(self.next()[1], scope, line)
            if negated:
                guard = Negated(guard)
        kind, opcode, line, _ = self.next()
        if kind != "name":
            raise ParseError(line, f"expected an instruction, found {opcode!r}")
        while self.tokens[self.at][1][:1] == "." and not self.before_number(self.at):  # spaces may precede a modifier
            opcode += self.next()[1]
        operands = []
        self.calling = opcode.startswith("call")
        if not self.accept(";"):
            while True:
                operands.append(self.operand(scope))
                if self.accept(","):
                    continue
                if self.accept(";"):
                    break
                self.fail(f"unexpected {self.peek()!r} after an operand of {opcode}")
        text = " ".join(self.text[start : self.tokens[self.at - 1][3]].split())
        self.statement_count += 1
        if self.statement_count > MOST_STATEMENTS:
            self.fail(f"more than {MOST_STATEMENTS:,} instructions are not covered")
        function.statements.append(Statement(guard, opcode, operands, line, self.source, text, self.callers))

    def offset(self, start=0):
        """The sum of `start` and a signed number, which is what stands behind the name in an address."""
        sign = -1 if self.next()[1] == "-" else 1
        offset = start + sign * self.constant(_PRODUCTS)
        if offset not in _OFFSETS:
            self.fail(f"the offset {offset} of an address has more than 32 bits")
        return offset

    def operand(self, scope, depth=0):
        kind, text, line, _ = self.tokens[self.at]
        self.nested(depth)
        if text == "[":
            return self.bracket(scope, depth)
        if text == "{" or (text == "(" and (self.calling or not self.before_number(self.at + 1))):
            self.next()
            items, close = [], "}" if text == "{" else ")"
            while not self.accept(close):
                items.append(self.operand(scope, depth + 1))
                if not self.accept(","):
                    self.expect(close)
                    break
            found = Vector(items) if text == "{" else Group(items)
            if text == "{" and self.accept("|"):  # the predicate that is true if the texels are resident
                kind, text, line, _ = self.next()
                return PredicatePair(found, SINK if text == "_" else Name(text, scope, line))
            return found
        if text == "!":
            self.next()
            return Negated(self.operand(scope, depth + 1))
        if self.before_number(self.at):
            return self.immediate()
        if kind != "name":
            raise ParseError(line, f"unexpected {text!r} as an operand")
        self.next()
        first = SINK if text == "_" else Name(text, scope, line)
        if self.accept("|"):
            kind, text, line, _ = self.next()
            return PredicatePair(first, SINK if text == "_" else Name(text, scope, line))
        if self.peek() in ("+", "-") and first is not SINK:
            return Address(first, self.offset())  # `mov.u64 d, symbol+4`
        if self.peek() == "[" and first is not SINK:
            self.next()
            offset = self.constant()
            if offset not in _OFFSETS:
                self.fail(f"the offset {offset} of an address has more than 32 bits")
            self.expect("]")
            return Address(first, offset)
        return first

    def before_number(self, at):
        kind, text, _, _ = self.tokens[at]
        return kind == "number" or text in ("-", "~", "(")

    def immediate(self):
        start = self.at
        negative = self.accept("-")
        text = self.next()[1]
        if text[:2] in ("0f", "0F"):
            return Immediate(int(text[2:], 16) ^ (negative << 31), "f32")
        if text[:2] in ("0d", "0D"):
            return Immediate(int(text[2:], 16) ^ (negative << 63), "f64")
        if "." in text:
            return Immediate(struct.unpack("<Q", struct.pack("<d", -float(text) if negative else float(text)))[0], "f64")
        self.at = start
        return Immediate(self.constant())

    def constant(self, level=0):
        """An integer, or an expression of integers with operators of this level and tighter."""
        start = self.at
        if self.tokens[start][0] == "number":
            value = self.integer()
            if self.peek() not in _OPERATORS:
                return value
            self.at = start
        return self.expression(level, 0)

    def expression(self, level, depth):
        if level == len(_LEVELS):
            return self.term(depth)
        value = self.expression(level + 1, depth)
        while self.peek() in _LEVELS[level]:
            _, operator, line, _ = self.next()
            if operator in ("<", ">"):
                self.expect(operator)
            value = _combined(operator, value, self.expression(level + 1, depth), line)
        return value

    def term(self, depth):
        self.nested(depth)
        if self.accept("-"):
            return -self.term(depth + 1)
        if self.accept("~"):
            return ~self.term(depth + 1)
        if self.accept("("):
            value = self.expression(0, depth + 1)
            self.expect(")")
            return value
        return self.integer()

    def bracket(self, scope, depth):
        self.expect("[")
        _, text, line, _ = self.tokens[self.at]
        if self.before_number(self.at):
            address = Address(None, self.constant())
        else:
            self.next()
            address = Address(Name(text, scope, line), 0)
            while self.peek() in ("+", "-"):
                address.offset = self.offset(address.offset)
        if self.accept(","):
            coordinates = self.operand(scope, depth + 1)
            rest = []
            while self.accept(","):
                rest.append(self.operand(scope, depth + 1))
            self.expect("]")
            return TensorAddress(address, coordinates, rest)
        self.expect("]")
        return address

    # ---- names
    def resolve(self, operand):
        if isinstance(operand, Name):
            return self.lookup(operand)
        if isinstance(operand, (Vector, Group)):
            operand.items = [self.resolve(item) for item in operand.items]
        elif isinstance(operand, Negated):
            operand.operand = self.resolve(operand.operand)
        elif isinstance(operand, PredicatePair):
            operand.first, operand.second = self.resolve(operand.first), self.resolve(operand.second)
        elif isinstance(operand, Address):
            if operand.base is not None:
                operand.base = self.resolve(operand.base)
        elif isinstance(operand, TensorAddress):
            operand.map, operand.coordinates = self.resolve(operand.map), self.resolve(operand.coordinates)
            operand.rest = [self.resolve(item) for item in operand.rest]
        return operand

    def lookup(self, name):
        scope = name.scope
        while scope is not None:
            found = scope.names.get(name.text)
            if found is None:
                found = scope.labels.get(name.text)
            if found is not None:
                return found
            scope = scope.parent
        if _SPECIAL.match(name.text):
            return Special(name.text)
        if name.text == "WARP_SZ":
            return Immediate(32)
        raise ParseError(name.line, f"{name.text!r} is not declared")


def _combined(operator, a, b, line):
    """Of integers of 64 bits."""
    if (operator == "/" and not b) or (operator in ("<", ">") and not 0 <= b < 64):
        raise ParseError(line, f"{a} {2 * operator if operator in '<>' else operator} {b} is no number")
    function = {
        "|": lambda: a | b, "^": lambda: a ^ b, "&": lambda: a & b, "<": lambda: a << b, ">": lambda: a >> b, "+": lambda: a + b, "-": lambda: a - b,
        "*": lambda: a * b, "/": lambda: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    }[operator]  # fmt: skip
    return (function() + (1 << 63)) % (1 << 64) - (1 << 63)


def _integer(text, line):
    text = text.rstrip("U")
    try:
        octal = len(text) > 1 and text[0] == "0" and text[1] not in "xXbB"
        value = int(text, 8 if octal else 0)
    except ValueError:
        raise ParseError(line, f"expected an integer, found {text[:80]!r}") from None
    if value >> 64:
        raise ParseError(line, f"a number of more than 64 bits, {text[:80]!r}")
    return value


class ParsedModule:
    """What parse() returns."""

    def __init__(self, parser):
        self.version, self.target, self.files = parser.version, parser.target, parser.files
        self.variables, self.functions = parser.variables, parser.functions
        self.read = parser.read


def parse(text, whole=True):
    """The module a PTX text describes. Where not the whole is parsed, .read(function) reads a body."""
    parser = _Parser(text, whole)
    parser.module()
    return ParsedModule(parser)
