# SPDX-License-Identifier: Apache-2.0
"""A tokenizer from the files of a model, whichever of three kinds, behind one interface, which is also the one Tunix asks of a tokenizer.

What goes with it lies beside it, for every kind: `tokenizer_config.json` (special tokens, chat template) and `chat_template.jinja`.
"""

import base64
import binascii
import json
import os
import re

from ..errors import CorruptError, IncompleteError, UnsupportedError, UsageError

_LLAMA_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3_RANKS = 128000
_NAMED = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


def load_tokenizer(path, *, pattern=None, chat_template=None):
    """The Tokenizer of a directory, or of one file of it.

    path: a directory with `tokenizer.json` (Hugging Face; needs tokenizers), a sentencepiece model (`tokenizer.model`; needs sentencepiece) or a table of
    tiktoken's (`*.tiktoken`, `tiktoken.model` or `tokenizer.model`, a line `BASE64 RANK` a token; needs tiktoken); what a file is, is seen in it.
    pattern: the regular expression by which a tiktoken tokenizer cuts text into words; the table does not hold it. Known for Llama 3's alone.
    chat_template: in place of the one that lies beside. IncompleteError where nothing is found, CorruptError for a file that is none of its kind,
    UsageError where tiktoken's pattern is missing.
    """
    file = _file(os.fspath(path))
    beside = _Beside(os.path.dirname(file))
    if file.endswith(".json"):
        kind = _HuggingFace(file, beside)
    elif (ranks := _ranks(file)) is not None:
        kind = _Tiktoken(file, ranks, beside, pattern)
    else:
        kind = _SentencePiece(file, beside)
    return Tokenizer(kind, beside, chat_template)


class Tokenizer:
    """Text to token ids and back. Made by load_tokenizer.

    kind: "huggingface", "sentencepiece" or "tiktoken". special_tokens: name (`bos_token` ...) -> text. chat_template: Jinja2, None without one.
    vocab_size: one more than the largest id. model: the object of the library that does the work.
    """

    def __init__(self, kind, beside, chat_template):
        self._kind, self.kind, self.model, self.vocab_size = kind, kind.name, kind.model, kind.size
        self.special_tokens = {**kind.named, **beside.named}
        self.chat_template = beside.chat_template if chat_template is None else chat_template

    def encode(self, text, add_bos=False, add_eos=False):
        """The ids of `text`, a list of ints, with neither begin nor end unless asked for; one that the tokenizer has not is UsageError."""
        ids = list(self._kind.encode(text))
        if add_bos:
            ids.insert(0, self._wanted("bos_token", self.bos_id()))
        if add_eos:
            ids.append(self._wanted("eos_token", self.eos_id()))
        return ids

    def decode(self, ids):
        """The text of ids, with the special tokens that the kind's own library shows."""
        return self._kind.decode([int(one) for one in ids])

    def id_of(self, token):
        """The id of a whole token, None where there is none."""
        return self._kind.id_of(token)

    def bos_id(self):
        """Begin of text; None without one."""
        return self._named("bos_token")

    def eos_id(self):
        """End of text; None without one."""
        return self._named("eos_token")

    def pad_id(self):
        """Padding; where there is none the end of text."""
        pad = self._named("pad_token")
        return self.eos_id() if pad is None else pad

    def apply_chat_template(self, messages, tools=None, documents=None, chat_template=None, add_generation_prompt=False, tokenize=True, **variables):
        """A chat as the model was taught it: ids, or text with tokenize=False.

        messages: dicts with `role` and `content`, as for transformers. tools: JSON schemas. add_generation_prompt: ends with what begins an answer.
        chat_template: Jinja2 in place of the tokenizer's own. variables: further names for the template, such as `enable_thinking`. Special tokens in the text, a
        user's too, become their ids. Needs jinja2. UsageError without a template; jinja2.TemplateError where the template refuses the chat.
        """
        template = self.chat_template if chat_template is None else chat_template
        if template is None:
            raise UsageError("the tokenizer has no chat template\nhint: give one, chat_template=", message="the tokenizer has no chat template", hint="give one, chat_template=")
        if not isinstance(template, str):
            wanted = "tool_use" if tools and "tool_use" in template else "default"
            if wanted not in template:
                raise UsageError(f"the tokenizer has several chat templates and none is the default: {', '.join(sorted(template))}",
                                 message="none of the chat templates is the default", expected="default", found=", ".join(sorted(template)))  # fmt: skip
            template = template[wanted]
        from ._chat import render

        text = render(template, messages, tools=tools, documents=documents, add_generation_prompt=add_generation_prompt, **{**self.special_tokens, **variables})
        return list(self._kind.encode_chat(text)) if tokenize else text

    def _named(self, name):
        token = self.special_tokens.get(name)
        return None if token is None else self._kind.id_of(token)

    def _wanted(self, name, found):
        if found is None:
            raise UsageError(f"the tokenizer has no `{name}`", message="the tokenizer lacks a special token", expected=name)
        return found


class _Beside:
    """What lies beside a tokenizer: the texts of special tokens by name, added tokens by text, the chat template or templates."""

    def __init__(self, folder):
        config = _json(os.path.join(folder, "tokenizer_config.json"))
        self.named = {}
        for source in (_json(os.path.join(folder, "special_tokens_map.json")), config):
            for name in _NAMED:
                token = source.get(name)
                token = token.get("content") if isinstance(token, dict) else token
                if isinstance(token, str):
                    self.named[name] = token
        self.added = {one["content"]: int(number) for number, one in (config.get("added_tokens_decoder") or {}).items()}
        template = config.get("chat_template") or _json(os.path.join(folder, "chat_template.json")).get("chat_template")
        file = os.path.join(folder, "chat_template.jinja")
        if os.path.isfile(file):
            with open(file, encoding="utf-8") as opened:
                template = opened.read()
        if isinstance(template, list):
            template = {one["name"]: one["template"] for one in template}
        self.chat_template = template


class _HuggingFace:
    name = "huggingface"

    def __init__(self, file, beside):
        import tokenizers

        try:
            self.model = tokenizers.Tokenizer.from_file(file)
        except Exception as error:   # a bare Exception, of the library's own
            raise CorruptError(f"{file} is no tokenizer: {error}", message="the file is no tokenizer", path=file) from error
        self.named = {}
        self.size = max(self.model.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text):
        return self.model.encode(text, add_special_tokens=False).ids

    encode_chat = encode

    def decode(self, ids):
        return self.model.decode(ids, skip_special_tokens=False)

    def id_of(self, token):
        return self.model.token_to_id(token)


class _SentencePiece:
    name = "sentencepiece"

    def __init__(self, file, beside):
        import sentencepiece

        self.model = sentencepiece.SentencePieceProcessor()
        try:
            self.model.LoadFromSerializedProto(_bytes(file))
        except (RuntimeError, OSError) as error:
            raise CorruptError(f"{file} is no sentencepiece model, and no table of tiktoken's: {error}", message="the file is no tokenizer", path=file) from error
        self._added = beside.added
        self.size = max([self.model.get_piece_size(), *(one + 1 for one in beside.added.values())])
        ids = (("bos_token", self.model.bos_id()), ("eos_token", self.model.eos_id()), ("pad_token", self.model.pad_id()), ("unk_token", self.model.unk_id()))
        self.named = {name: self.model.id_to_piece(one) for name, one in ids if one >= 0}
        self._whole = None

    def encode(self, text):
        return self.model.encode(text)

    def encode_chat(self, text):
        """Sentencepiece makes no control piece of a text: they are cut out before."""
        if self._whole is None:
            control = {self.model.id_to_piece(one): one for one in range(self.model.get_piece_size()) if self.model.is_control(one)}
            self._whole = {**control, **self._added}
        ids = []
        for piece, number in _cut(text, self._whole):
            if number is not None:
                ids.append(number)
            else:
                ids += self._middle(piece) if ids else self.model.encode(piece)
        return ids

    def _middle(self, text):
        """As inside a text, where no space is put before the first word."""
        anchor = self.model.encode("\n")
        ids = self.model.encode("\n" + text)
        return ids[len(anchor):] if anchor and ids[: len(anchor)] == anchor else self.model.encode(text)

    def decode(self, ids):
        texts = {number: token for token, number in self._added.items()}
        made, run = [], []
        for one in [*ids, None]:
            if one is not None and (one not in texts or one < self.model.get_piece_size()):
                run.append(one)
                continue
            made.append(self.model.decode(run) if run else "")
            run = []
            made.append(texts.get(one, ""))
        return "".join(made)

    def id_of(self, token):
        if token in self._added:
            return self._added[token]
        number = self.model.piece_to_id(token)
        return number if number != self.model.unk_id() or token == self.model.id_to_piece(number) else None


class _Tiktoken:
    name = "tiktoken"

    def __init__(self, file, ranks, beside, pattern):
        special = dict(beside.added)
        named = {}
        if len(ranks) == _LLAMA_3_RANKS and not special:
            special, named = _llama_3(len(ranks))
        if pattern is None and len(ranks) == _LLAMA_3_RANKS:
            pattern = _LLAMA_3
        if pattern is None:
            raise UsageError(f"{file} does not hold the pattern by which text is cut into words, and it is not Llama 3's table\nhint: give it, pattern=",
                             message="the tokenizer's pattern is not known", path=file, expected=f"`pattern`, or {_LLAMA_3_RANKS} tokens", found=f"{len(ranks)} tokens",
                             hint="give it, pattern=")  # fmt: skip
        import tiktoken

        self.model = tiktoken.Encoding(os.path.basename(file), pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        self._special, self.named, self.size = special, named, self.model.n_vocab

    def encode(self, text):
        return self.model.encode_ordinary(text)

    def encode_chat(self, text):
        return self.model.encode(text, allowed_special="all")

    def decode(self, ids):
        return self.model.decode(ids)

    def id_of(self, token):
        if token in self._special:
            return self._special[token]
        try:
            return self.model.encode_single_token(token)
        except KeyError:
            return None


def _llama_3(first):
    """Llama 3's 256 special tokens, which its table leaves out (Meta's llama3/tokenizer.py)."""
    names = ["<|begin_of_text|>", "<|end_of_text|>", *(f"<|reserved_special_token_{i}|>" for i in range(4)), "<|start_header_id|>", "<|end_header_id|>",
             "<|reserved_special_token_4|>", "<|eot_id|>", *(f"<|reserved_special_token_{i}|>" for i in range(5, 251))]  # fmt: skip
    return {name: first + i for i, name in enumerate(names)}, {"bos_token": names[0], "eos_token": names[1]}


def _file(path):
    """The file that is the tokenizer."""
    if os.path.isfile(path):
        return os.path.join(os.path.dirname(path), "tokenizer.json") if os.path.basename(path) == "tokenizer_config.json" else path
    names = sorted(os.listdir(path)) if os.path.isdir(path) else []
    known = ["tokenizer.json", "tokenizer.model", "tiktoken.model", "spiece.model", *(name for name in names if name.endswith((".tiktoken", ".model")))]
    for name in known:
        if name in names:
            return os.path.join(path, name)
    raise IncompleteError(f"{path} holds no tokenizer\nhint: a `tokenizer.json`, as transformers' save_pretrained makes it, a `tokenizer.model`, or a `.tiktoken`",
                          message="there is no tokenizer", path=path, expected="tokenizer.json, tokenizer.model or *.tiktoken",
                          hint="a `tokenizer.json`, as transformers' save_pretrained makes it, a `tokenizer.model`, or a `.tiktoken`")  # fmt: skip


def _ranks(file):
    """bytes -> rank of a table of tiktoken's; None for another file."""
    lines = _bytes(file).splitlines()
    if not lines or not re.fullmatch(rb"[A-Za-z0-9+/]+=* \d+", lines[0]):
        return None
    ranks = {}
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error) as error:
            raise CorruptError(f"{file}, line {number}, is no `BASE64 RANK`: {line[:60]!r}", message="a line is no token", path=file, expected="BASE64 RANK", found=repr(line[:60])) from error
    return ranks


def _cut(text, whole):
    """(piece, id or None) of a text, cut at the tokens of `whole`; the longest first."""
    if not whole:
        yield text, None
        return
    at = 0
    for found in re.finditer("|".join(re.escape(one) for one in sorted(whole, key=len, reverse=True)), text):
        if found.start() > at:
            yield text[at : found.start()], None
        yield found.group(), whole[found.group()]
        at = found.end()
    if at < len(text):
        yield text[at:], None


def _bytes(file):
    with open(file, "rb") as opened:
        return opened.read()


def _json(file):
    """The object in a file, {} where there is no file."""
    if not os.path.isfile(file):
        return {}
    try:
        value = json.loads(_bytes(file))
    except ValueError as error:
        raise CorruptError(f"{file} is not JSON: {error}", message="the file is not JSON", path=file) from error
    if not isinstance(value, dict):
        raise UnsupportedError(f"{file} holds no object", message="the file holds no object", path=file, expected="a JSON object", found=type(value).__name__)
    return value
