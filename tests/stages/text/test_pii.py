"""What PiiRedactor finds, and what it leaves alone."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from tamis.stages.text.modifiers import Modify, PiiRedactor
from tamis.stages.text.modifiers.pii_rules import RULES
from tamis.tasks import DocumentBatch

EVERY_KIND = PiiRedactor(kinds=list(RULES))

FOUND = [
    ("email", "jane.doe+news@mail.example.co.uk"),
    ("email", "x@y-z.org"),
    ("phone", "+49 30 901820-0"),
    ("phone", "+1 (415) 254 2601"),
    ("phone", "(212) 555-0100"),
    ("phone", "415-555-0132"),
    ("phone", "1-800-555-0199"),
    ("ip", "93.184.216.34"),
    ("ip", "2a00:1450:4001:82a::200e"),
    ("ip", "2001:67c:2564:a119:0:0:0:77"),
    ("iban", "GB82WEST12345698765432"),
    ("iban", "DE89 3704 0044 0532 0130 00"),
    ("credit_card", "4012 8888 8888 1881"),
    ("credit_card", "5425233430109903"),
    ("credit_card", "3782-822463-10005"),
    ("key", "AKIAIOSFODNN7EXAMPLE"),
    ("key", "ghp_" + "a1B2" * 9),
    ("key", "xoxb-" + "123456789012-abcdefABCDEF"),
    ("key", "AIza" + "Sy0" + "x" * 32),
    ("key", "sk-ant-api03-" + "aB3_" * 8),
    ("key", "sk-" + "a1B2c3D4" * 5),
    ("key", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"),
    ("key", "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3xf\n-----END RSA PRIVATE KEY-----"),
    ("key", "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIE\n-----END RSA PRIVATE KEY-----"),
    ("ssn", "078-05-1120"),
    ("email", "m\u00fcller@gr\u00fcn.de"),
    ("email", "o'brien@mail.ie"),
    ("phone", "+33\u00a01\u00a023\u00a045\u00a067\u00a089"),
    ("iban", "DE89\u00a03704\u00a00044\u00a00532\u00a00130\u00a000"),
    ("credit_card", "4012\u00a08888\u00a08888\u00a01881"),
]
IN_CONTEXT = [
    ("\u90ae\u7bb1abc@mail.com\u8c22\u8c22", "\u90ae\u7bb1<EMAIL>\u8c22\u8c22"),
    ("abc@mail.com\uc73c\ub85c", "<EMAIL>\uc73c\ub85c"),
    ("\u670d\u52a1\u566893.184.216.34\u7684", "\u670d\u52a1\u5668<IP_ADDRESS>\u7684"),
    ("\u7535\u8bdd\uff1a010-62781234\u3002", "\u7535\u8bdd\uff1a<PHONE>\u3002"),
    ("T\u00e9l. : 01 23 45 67 89", "T\u00e9l. : <PHONE>"),
    ("T\u00c9L\u00a0:\u00a001.23.45.67.89", "T\u00c9L\u00a0:\u00a0<PHONE>"),
    ("Tel.: (030) 12 34 567", "Tel.: <PHONE>"),
    ("Tel. 030 / 123456", "Tel. <PHONE>"),
    ("\u0422\u0435\u043b.: 8 (495) 123-45-67", "\u0422\u0435\u043b.: <PHONE>"),
    ("http://93.184.216.34:80/x", "http://<IP_ADDRESS>:80/x"),
    (
        "ip=93.184.216.34, from 93.184.216.34. TV 93.184.216.34 (93.184.216.34)",
        "ip=<IP_ADDRESS>, from <IP_ADDRESS>. TV <IP_ADDRESS> (<IP_ADDRESS>)",
    ),
    ("host 2.16.156.112: 8.8.8.88", "host <IP_ADDRESS>: <IP_ADDRESS>"),
    ("It is 2a00:1450:4001:82a::200e.", "It is <IP_ADDRESS>."),
    ("2a00:1450:4001:82a::200e: no route", "<IP_ADDRESS>: no route"),
]
LEFT_ALONE = [
    "version 10.40.200.12, kernel 5.10.120.3, 1.2.3.4 and 2.6.32.12",
    "127.0.0.1 192.168.1.1 10.0.0.255 255.255.255.0 0.0.0.0 256.300.1.2 ::1 fe80::1 ff02::1",
    "OID 1.3.6.1.4.1.311.21.20, 49.6.4.18.7, linux-2.6.132.12-1",
    "id-X25519 is 1.3.101.110, id-Ed25519 1.3.101.112; 1.2.156.197 is Chinese; OID: 2.16.156.112, oid=2.23.140.1",
    'foo (>= 73.40.183.75), "version": "93.184.216.34", Build 91.40.72.124, FileVersion=93.184.216.34, v 4.184.216.34',
    "\u00a7 12.60.3.4, Fig. 7.61.2.1, clause 93.184.16.4, Table 9.184.16.3, 93.184.216.34.tar.gz, 91.40.72.124.exe",
    "\n7.40.4.1. Sliced data",
    "ISBN 978-3-16-148410-0, 9783161484100, 2024-01-31 12:30:45, 20240131123045, 1700000000000",
    "4111 1111 1111 1112, 1234567890123456, 0.4111111111111111, id=4012888888881881, 5105105105105100x",
    "getty@tty1.service image@2x.png git@github.com:a/b.git user@localhost @media a@b @ mailto:",
    "sk-ssh-ed25519-cert-v01@openssh and sk-ecdsa-sha2-nistp256-cert AKIA GHP_ risk-averse-people-are-everywhere",
    "GB82WEST12345698765433 XX82WEST12345698765432 ISO8859 UTF16LE0000",
    "std::vector<int> a::b::c 12:30:45 00:1b:44:11:3a:b7 DB::File dead::beef",
    "call 5551234, 100-200-3000, 415-155-0132, +1.5, +1000, 1.0+20040310, 123 456 7890, tel. 12",
    "000-12-3456 666-12-3456 900-12-3456 123-00-4567 123-45-0000 1123-45-6789",
    "password = hunter2, token: ${SECRET_TOKEN_FROM_ENV}, secret: aaaaaaaaaaaaaaaaaaaa, api_key=your_api_key_goes_here",
    "Chrome/91.40.72.124, hotel. 1234567, Tel Aviv 1909, phone. 20 people, x+123456789012, lodash@4.17.21",
    "TimeStampToken = rfc3161.TimeStampToken2, token = self.tokens1.next_token, secret: hashlib.sha256_digest_of_all",
    "access_key = MY_SECRET_ACCESS_KEY_V2, private_key: ~/.ssh/id_ed25519_2024_q1, token: /run/x9/k3J9xQ2mZ7pL5vB8",
    "-----BEGIN PUBLIC KEY-----\nMIIEowIBAAKCAQEA0Z3VS5JJcds3xf\n-----END PUBLIC KEY-----",
]


@pytest.mark.parametrize(("kind", "data"), FOUND)
def test_data_is_replaced_by_its_tag(kind: str, data: str) -> None:
    tag = {"ip": "<IP_ADDRESS>"}.get(kind, f"<{kind.upper()}>")
    assert EVERY_KIND.modify_document(f"So: {data}, \u00e9") == f"So: {tag}, \u00e9"
    assert EVERY_KIND.modify_document(data) == tag


@pytest.mark.parametrize(("text", "redacted"), IN_CONTEXT)
def test_data_is_found_in_sentences_of_several_languages(text: str, redacted: str) -> None:
    assert PiiRedactor().modify_document(text) == redacted
    assert PiiRedactor().modify_column(pa.chunked_array([[text]])).to_pylist() == [redacted]


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    assert EVERY_KIND.modify_document(text) == text


def test_value_of_a_secret_is_replaced_when_asked_for() -> None:
    text = 'api_key: "k3J9xQ2mZ7pL5vB8nR4t"'
    assert PiiRedactor().modify_document(text) == text
    assert PiiRedactor(kinds=["secret"]).modify_document(text) == 'api_key: "<SECRET>"'


@pytest.mark.parametrize(
    "value",
    [
        "9f86d081884c7d659a2feaa0c55ad015",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzP4q8aKEY",
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "dGhpcyBpcyBub3QgYSBzZWNyZXQ5",
        "xkcd-9qWe.rT2y-UiOp3",
    ],
)
def test_a_random_value_is_a_secret(value: str) -> None:
    redactor = PiiRedactor(kinds=["secret"])
    assert redactor.modify_document(f"token = {value}") == "token = <SECRET>"
    assert redactor.modify_document(f"PASSWORD={value}\n") == "PASSWORD=<SECRET>\n"


def test_several_in_a_text() -> None:
    text = "a@b.cd, a@b.cd\nTel.: 030 901820; 93.184.216.34"
    assert PiiRedactor().modify_document(text) == "<EMAIL>, <EMAIL>\nTel.: <PHONE>; <IP_ADDRESS>"


def test_tags_can_be_chosen() -> None:
    redactor = PiiRedactor(kinds=["email"], tags={"email": "email@example.org"})
    assert redactor.modify_document("a@b.cd (212) 555-0100") == "email@example.org (212) 555-0100"


def test_replacements_are_counted_for_the_run_and_for_each_document() -> None:
    batch = DocumentBatch({"text": ["a@b.cd a@b.cd", None, "93.184.216.34", "nothing"]})
    stage = Modify(PiiRedactor(kinds=["email", "ip"], counts_field="pii"))
    assert stage.outputs() == (["data"], ["text", "pii"])
    data = stage.process(batch).data
    assert data["text"].to_pylist() == ["<EMAIL> <EMAIL>", None, "<IP_ADDRESS>", "nothing"]
    assert [count["email"] for count in data["pii"].to_pylist()] == [2, 0, 0, 0]
    assert stage.take_metrics() == {"email": 2, "ip": 1}


def test_text_without_any_is_passed_on_as_it_is() -> None:
    batch = DocumentBatch({"text": ["No one wrote 1 thing to anybody.", None]})
    stage = Modify(PiiRedactor())
    assert stage.process(batch) is batch
    assert set(stage.take_metrics().values()) == {0}


@pytest.mark.parametrize("text", ["+" + "1" * 200_000, "@" * 100_000, "a@" * 50_000, "1." * 100_000, ":" * 100_000])
def test_hostile_text_takes_no_long_time(text: str) -> None:
    assert len(EVERY_KIND.modify_document(text)) <= len(text)


def test_unknown_kind_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=re.escape("no kind 'mail'") + ".*email"):
        PiiRedactor(kinds=["mail"])
    with pytest.raises(ValueError, match="name some of key, secret, email"):
        PiiRedactor(kinds=[])
    with pytest.raises(TypeError, match="the tag of email is a text, not 5"):
        PiiRedactor(tags={"email": 5})  # type: ignore[dict-item]  # the error is the point
