"""Personal data and secrets that nobody owns, each with the part that must not survive.

Keys are put together here, so that no scanner takes this file for a leak.
"""

from typing import Final

from app.guards.spans import Kind

LOCALES: Final = ("us", "gb", "de", "fr", "es", "it", "nl", "cn", "in", "br", "ca", "pl", "se")
_HEX: Final = "0123456789abcdef" * 2
_RANDOM: Final = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0dF2hJ4"  # 36 letters and digits
_CLAIMS: Final = "eyJzdWIiOiIxMjM0NTY3ODkwIn0"
_BODY: Final = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQ9x8y7z=="

_RSA: Final = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,0F\n\n"
    f"{_BODY}\n-----END RSA PRIVATE KEY-----"
)

# What is written, and what of it must be gone.
PLANTED: Final[dict[Kind, tuple[tuple[str, str], ...]]] = {
    "email": (
        ("joe@example.com", "joe"),
        ("Joe.Bloggs+news@mail.example.co.uk", "Bloggs"),
        ("o'brien_7@example.org", "brien"),
        ("josé.núñez@correo.example", "josé"),
        ("joe%40example.com", "joe"),
        ("info@xn--bcher-kva.example", "info"),
    ),
    "phone": (
        ("+49 170 1234567", "1234"),
        ("+1 (212) 555-1234", "212"),
        ("+442079460958", "2079"),
        ("+33 1 70 18 99 00", "70 18"),
        ("(212) 555-1234", "212"),
        ("212.555.1234", "212"),
        ("0170 1234567", "0170"),
        ("020 7946 0958", "7946"),
    ),
    "card": (
        ("4111111111111111", "411111111111"),
        ("4111 1111 1111 1111", "4111 1111"),
        ("5555-5555-5555-4444", "5555-5555"),
        ("378282246310005", "37828224631"),
        ("3782 822463 10005", "822463"),
        ("6011111111111117", "601111111111"),
        ("3530111333300000", "353011133330"),
        ("30569309025904", "3056930902"),
        ("2223003122003222", "222300312200"),
        ("6212345678901232", "621234567890"),
        ("4222222222222", "422222222"),
    ),
    "national_id": (
        ("536-90-4399", "536-90"),  # us
        ("912-90-3456", "912-90"),  # us, for taxpayers
        ("SSN: 536904399", "53690"),
        ("AB 12 34 56 C", "12 34"),  # gb
        ("943 476 5870", "943 476"),  # gb, health service
        ("36 574 261 809", "574"),  # de
        ("2 95 10 99 126 111 93", "95 10"),  # fr
        ("54362315K", "54362"),  # es
        ("X-2482300-W", "2482300"),  # es, foreigners
        ("RCCMNL83S18D969H", "RCCMNL"),  # it
        ("111222333", "11122"),  # nl
        ("360426199101010071", "36042619910101"),  # cn
        ("2341 2341 2346", "2341 2341"),  # in
        ("ACUPA7085R", "ACUPA7"),  # in, for taxpayers
        ("390.533.447-05", "390.533"),  # br
        ("123-456-782", "123-45"),  # ca
        ("44051401359", "4405140"),  # pl
        ("880320-0016", "880320"),  # se
    ),
    "secret": (
        ("AKIA" + "IOSFODNN7EXAMPLE"[:9] + "EXAMPLE", "IOSFODNN"),
        (f"AKIAIOSFODNN7EXAMPLE, {_RANDOM}+/x7", _RANDOM),
        (f"aws_secret_access_key = {_RANDOM}+/x7", _RANDOM),
        ("ghp_" + _RANDOM, _RANDOM),
        ("gho_" + _RANDOM, _RANDOM),
        ("ghs_" + _RANDOM, _RANDOM),
        ("github_pat_" + _RANDOM + "_" + _RANDOM, _RANDOM),
        ("glpat-" + _RANDOM[:20], _RANDOM[:20]),
        ("xoxb-" + "1234567890-1234567890-" + _RANDOM[:24], _RANDOM[:24]),
        ("xapp-1-A012-345-" + _HEX, _HEX),
        ("https://hooks.slack.com/services/T0123/B0123/" + _RANDOM[:24], _RANDOM[:24]),
        ("AIza" + _RANDOM[:35], _RANDOM[:35]),
        ("sk_live_" + _RANDOM[:24], _RANDOM[:24]),
        ("rk_test_" + _RANDOM[:24], _RANDOM[:24]),
        ("whsec_" + _RANDOM[:32], _RANDOM[:32]),
        ("sk-" + _RANDOM, _RANDOM),
        ("sk-proj-" + _RANDOM, _RANDOM),
        ("sk-ant-api03-" + _RANDOM + "-AA", _RANDOM),
        ("npm_" + _RANDOM, _RANDOM),
        ("pypi-AgEIcHlwaS5vcmcC" + _RANDOM * 2, _RANDOM),
        (f"SG.{_RANDOM[:22]}.{_RANDOM}abcdefg", _RANDOM),
        ("SK" + _HEX, _HEX),
        (f"mts_ci-bot_{_RANDOM}-_xY1zW", _RANDOM),
        (f"eyJhbGciOiJIUzI1NiJ9.{_CLAIMS}.{_RANDOM}", _RANDOM),
        (f"-----BEGIN PRIVATE KEY-----\n{_BODY}\n-----END PRIVATE KEY-----", "MIIEvQ"),
        (_RSA, "BKcwgg"),
        (f"-----BEGIN EC PRIVATE KEY-----\n{_BODY}", "BKcwgg"),  # cut off
        ("Authorization: Bearer x7", "x7"),
        ("authorization: Basic dXNlcjpwdw==", "dXNlcjpwdw"),
        ("'Authorization': 'Bearer x7.y8'", "y8"),
        (f"used Bearer {_RANDOM}", _RANDOM),
        ("Cookie: sid=x7y8; theme=dark", "x7y8"),
        ("postgres://admin:hunter2@db.internal/prod", "hunter2"),
        ("amqp://u:p@ss2@host:5672", "ss2"),
        ("redis://:hunter2@cache", "hunter2"),
        ("password=hunter2", "hunter2"),
        ("DB_PASSWORD: hunter2", "hunter2"),
        ('{"password": "hunter2"}', "hunter2"),
        (r'{"password": "hun\"ter2"}', "ter2"),
        (r"{\"password\": \"hunter2\"}", "hunter2"),
        ("config['password'] = 'hunter2 and more'", "more"),
        ("password: str = 'hunter2'", "hunter2"),
        ("clientSecret=hunter2", "hunter2"),
        ("/login?user=joe&api_key=hunter2&x=1", "hunter2"),
        ("X-Api-Key: hunter2", "hunter2"),
        ("PGPASSWORD=hunter2;", "hunter2"),
        ("MYSQL_PASS=hunter2", "hunter2"),
        ("f(passphrase=hun(ter)2)", "ter"),
        ("<password>hunter2</password>", "hunter2"),
        (f"token={_RANDOM[:16]}", _RANDOM[:16]),
    ),
}  # fmt: skip
