"""load_tokenizer beside sentencepiece, tiktoken and transformers themselves, on tiny tokenizers made here."""
import base64
import io
import json
import shutil

import jinja2
import numpy as np
import pytest

import tool

crossdock = tool.package()

import sentencepiece
import tiktoken
import tokenizers
import transformers
from tunix.generate import tokenizer_adapter

from crossdock import post_training
from crossdock.post_training import _chat

TEXTS = ["the quick brown fox jumps over the lazy dog", "Hello, world! 12345 times", "grüße über alles\nzwei  Zeilen", " leading and trailing ", ""]
CHAT = """{{- bos_token -}}
{%- if messages[0]['role'] == 'system' %}{% set system = messages[0].content %}{% set messages = messages[1:] %}{% endif %}
{% if system is defined %}<|im_start|>system
{{ system }}<|im_end|>
{% endif %}
{% if tools %}
    {% for tool in tools %}
{{ tool | tojson }}
    {% endfor %}
{% endif %}
{% set seen = namespace(users=0) %}
{% for message in messages %}
    {% if message.role not in ['user', 'assistant'] %}{{ raise_exception('no role ' ~ message.role) }}{% endif %}
    {% if message.role == 'user' %}{% set seen.users = seen.users + 1 %}{% endif %}
    {% if message.content is none or message.content == 'stop' %}{% break %}{% endif %}
<|im_start|>{{ message.role }}
{% generation %}{{ message.content | trim }}{% endgeneration %}<|im_end|>
{% endfor %}
{% if mood is defined %}[{{ mood }} {{ seen.users }} {{ dict(a=1)['a'] }}]{% endif %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
"""
MESSAGES = [{"role": "system", "content": "Be <b>brief</b> & \"kind\"."}, {"role": "user", "content": " Grüße! 2 < 3? "}, {"role": "assistant", "content": "Yes.", "tool_calls": None}]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "a < b & 'c' é", "parameters": {"type": "object", "properties": {}}}}]
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer, made.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
    made.train_from_iterator(TEXTS * 5, tokenizers.trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIAL, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    whole = transformers.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")
    whole.chat_template = CHAT
    whole.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sentence_pieces(tmp_path_factory, hugging_face):
    folder = tmp_path_factory.mktemp("sp")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS * 5), model_writer=model, vocab_size=345, model_type="bpe", byte_fallback=True, character_coverage=1.0,
                                             control_symbols=["<|im_start|>"], user_defined_symbols=["<|im_end|>"], normalization_rule_name="identity",
                                             remove_extra_whitespaces=False, minloglevel=2, num_threads=1)  # fmt: skip
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    (folder / "chat_template.jinja").write_text(CHAT)
    return folder


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiktoken")
    table = [bytes([i]) for i in range(256)] + [b"th", b"the", b" the", b"ll", b"12", b"123", b"er"]
    (folder / "tokenizer.model").write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(table)))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "added_tokens_decoder": {str(300 + i): {"content": token, "special": True} for i, token in enumerate(SPECIAL)},
        "chat_template": [{"name": "default", "template": CHAT}, {"name": "tool_use", "template": "T{{ tools | length }}"}]}))
    return folder, {token: rank for rank, token in enumerate(table)}


PATTERN = r"\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+"


def test_hugging_face_is_as_transformers(hugging_face):
    ours, theirs = post_training.load_tokenizer(hugging_face), transformers.AutoTokenizer.from_pretrained(hugging_face)
    assert ours.kind == "huggingface" and ours.vocab_size == len(theirs)
    assert (ours.bos_id(), ours.eos_id(), ours.pad_id()) == (theirs.bos_token_id, theirs.eos_token_id, theirs.eos_token_id)
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs.encode(text, add_special_tokens=False) and ours.decode(ids) == theirs.decode(ids) == text
    assert ours.encode("fox", add_bos=True, add_eos=True) == [ours.bos_id(), *ours.encode("fox"), ours.eos_id()]
    assert post_training.load_tokenizer(hugging_face / "tokenizer.json").encode("fox") == ours.encode("fox")


@pytest.mark.parametrize("more", [{}, {"add_generation_prompt": True}, {"tools": TOOLS}, {"tools": TOOLS, "mood": "<gay>", "add_generation_prompt": True}], ids=str)
def test_chats_are_rendered_as_by_transformers(hugging_face, more):
    ours, theirs = post_training.load_tokenizer(hugging_face), transformers.AutoTokenizer.from_pretrained(hugging_face)
    text = theirs.apply_chat_template(MESSAGES, tokenize=False, **more)
    assert "<b>brief</b>" in text and ours.apply_chat_template(MESSAGES, tokenize=False, **more) == text
    assert ours.apply_chat_template(MESSAGES, **more) == theirs.apply_chat_template(MESSAGES, return_dict=False, **more)


def test_templates_speak_up(hugging_face):
    ours = post_training.load_tokenizer(hugging_face)
    with pytest.raises(jinja2.TemplateError, match="no role tool"):
        ours.apply_chat_template([{"role": "tool", "content": "x"}])
    year = ours.apply_chat_template(MESSAGES, chat_template="{{ strftime_now('%Y') }}", tokenize=False)
    assert len(year) == 4 and int(year) > 2024
    bare = post_training.load_tokenizer(hugging_face)
    bare.chat_template = None
    with pytest.raises(crossdock.UsageError, match="no chat template"):
        bare.apply_chat_template(MESSAGES)
    for wrong in ([], "hello", ["hello"]):
        with pytest.raises(crossdock.UsageError, match="a chat is a list of messages"):
            ours.apply_chat_template(wrong)
    with pytest.raises(crossdock.UsageError, match="no module"):
        ours.apply_chat_template(MESSAGES, mood=json)
    with pytest.raises(crossdock.UsageError, match="JSON schema"):
        ours.apply_chat_template(MESSAGES, tools=[len])


@pytest.mark.parametrize("template", [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}", "{{ raise_exception.__globals__['__builtins__'] }}", "{{ dict.__globals__['json'] }}", "{{ messages.append(1) }}",
    "{{ messages[0].update(a=1) }}", "{% set n = namespace(__init__=1) %}", "{% set n = namespace() %}{% set n.__class__ = 1 %}", "{{ ''.format.__self__.__class__.mro() }}",
    "{{ '{0.__class__.__base__.__subclasses__}'.format('') }}", "{{ cycler.__init__.__globals__.os }}", "{{ self.__init__.__globals__ }}",
])  # fmt: skip
def test_a_template_stays_in_its_sandbox(template):
    with pytest.raises(jinja2.exceptions.SecurityError):
        print(_chat.render(template, MESSAGES))


@pytest.mark.parametrize("value,text", [
    (np.int64(3), "3"), (np.uint8(3), "3"), (np.float32(0.5), "0.5"), (np.float64(0.5), "0.5"), (np.bool_(True), "true"), (np.str_("a"), '"a"'), (np.array([1, 2]), "[1, 2]"),
])  # fmt: skip
def test_numbers_of_datasets_are_numbers(value, text):
    assert _chat.render("{{ messages[0].score | tojson }}", [{"role": "user", "score": value}]) == text


def test_sentencepiece_is_as_itself_and_cuts_control_pieces_out_of_chats(sentence_pieces):
    ours, theirs = post_training.load_tokenizer(sentence_pieces), sentencepiece.SentencePieceProcessor(model_file=str(sentence_pieces / "tokenizer.model"))
    assert ours.kind == "sentencepiece" and ours.vocab_size == theirs.get_piece_size()
    assert (ours.bos_id(), ours.eos_id(), ours.pad_id()) == (theirs.bos_id(), theirs.eos_id(), theirs.eos_id())
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text) and ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text)) == text
    assert ours.id_of("<|im_start|>") == theirs.piece_to_id("<|im_start|>") and ours.id_of("no such piece") is None
    ids = ours.apply_chat_template([{"role": "user", "content": "the fox"}], add_generation_prompt=True)
    pieces = [theirs.id_to_piece(one) for one in ids]
    assert pieces[:2] == ["<s>", "<|im_start|>"] and pieces.count("<|im_start|>") == 2 and pieces.count("<|im_end|>") == 1
    # Inside a text no space is put before a word: what follows a control piece is what was written.
    assert ours.decode(ids) == "user\nthe fox<|im_end|>\nassistant\n"


def test_tiktoken_is_as_itself(ranks):
    folder, table = ranks
    with pytest.raises(crossdock.UsageError, match="pattern"):
        post_training.load_tokenizer(folder)
    ours = post_training.load_tokenizer(folder, pattern=PATTERN)
    theirs = tiktoken.Encoding("x", pat_str=PATTERN, mergeable_ranks=table, special_tokens={token: 300 + i for i, token in enumerate(SPECIAL)})
    assert ours.kind == "tiktoken" and ours.vocab_size == 304 and (ours.bos_id(), ours.eos_id(), ours.pad_id()) == (300, 301, 301)
    for text in [*TEXTS, "<s> is text here"]:
        assert ours.encode(text) == theirs.encode_ordinary(text) and ours.decode(ours.encode(text)) == text
    text = ours.apply_chat_template(MESSAGES, tokenize=False)
    assert ours.apply_chat_template(MESSAGES) == theirs.encode(text, allowed_special="all") and 302 in ours.apply_chat_template(MESSAGES)
    assert ours.apply_chat_template(MESSAGES, tools=TOOLS, tokenize=False) == "T1"
    assert ours.id_of("the") == table[b"the"] and ours.id_of("zzz") is None


def test_llama_3s_table_is_known(tmp_path):
    table = [bytes([i]) for i in range(256)] + [b"%06d" % i for i in range(128000 - 256)]
    (tmp_path / "tokenizer.model").write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(table)))
    ours = post_training.load_tokenizer(tmp_path)
    assert ours.vocab_size == 128256 and (ours.bos_id(), ours.eos_id()) == (128000, 128001)
    # Where Meta's own code has them.
    assert [ours.id_of(f"<|{name}|>") for name in ("start_header_id", "end_header_id", "eot_id", "reserved_special_token_5", "reserved_special_token_250")] == [128006, 128007, 128009, 128010, 128255]


@pytest.mark.parametrize("which", ["hugging_face", "sentence_pieces"])
def test_tunix_takes_it_for_a_tokenizer(which, request):
    ours = post_training.load_tokenizer(request.getfixturevalue(which))
    adapter = tokenizer_adapter.TokenizerAdapter(ours)
    assert adapter.encode("the fox") == ours.encode("the fox") and adapter.decode(adapter.encode("the fox")) == "the fox"
    assert (adapter.bos_id(), adapter.eos_id(), adapter.pad_id()) == (ours.bos_id(), ours.eos_id(), ours.pad_id())
    chat = [{"role": "user", "content": "the fox"}]
    assert adapter.apply_chat_template(chat) == ours.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)


def test_what_is_no_tokenizer_is_named(tmp_path, hugging_face):
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a\x00 nonsense")
    with pytest.raises(crossdock.CorruptError, match="no sentencepiece model"):
        post_training.load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(crossdock.CorruptError, match="is no tokenizer"):
        post_training.load_tokenizer(tmp_path)
    shutil.copy(hugging_face / "tokenizer.json", tmp_path / "tokenizer.json")
    with pytest.raises(crossdock.UsageError, match="no `bos_token`"):
        post_training.load_tokenizer(tmp_path).encode("x", add_bos=True)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(crossdock.CorruptError, match="tokenizer_config.json is not JSON"):
        post_training.load_tokenizer(tmp_path)
