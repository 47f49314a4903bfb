"""What prompt injections look like, in English, Chinese, German, Spanish and French.

A phrase needs more than one suspicious word: "ignore case", "the previous rules" and "a system
prompt" are things that people write about. Each expression is built from parts that share no
character with what follows them, or that are short. So looking takes linear time.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

# Brackets and operators are left out: with them between the words it is code.
_GAP: Final = r"[\s_.,:;!?'\"`*~#\u2013\u2014-]{1,12}"
_SOME: Final = r"(?: [^\W_]{1,20}){0,3}?"  # up to three words


class Phrase(NamedTuple):
    r"""A kind of injection.

    Attributes:
        openers: What a match begins with: it is tried where one of these is.
        expression: For text in lower case whose white space is single spaces. A space stands for a
            short stretch of spaces and punctuation; one that is meant is written ``\x20``.
        needs: One of these is in every text with a match, where openers are too common to tell.
    """

    openers: tuple[str, ...]
    expression: str
    needs: tuple[str, ...] = ()

    @property
    def stems(self) -> tuple[str, ...]:
        """A text that has none of them has no match."""
        return self.needs or self.openers

    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.expression.replace(" ", _GAP))


HIDDEN_TEXT: Final = "hidden-text"
"""The one that is looked for before invisible characters are taken out."""

_SENDING: Final = ("send", "post", "upload", "forward", "transmit", "exfiltrate", "leak", "submit")
_SECRETS: Final = (
    r"\b(?:conversation|chat (?:history|log)|credentials|secrets?|api keys?|private keys?|ssh keys?"
    r"|access tokens?|passwords?|environment variables|system prompt)\b"
)
_SPELLED: Final = ("ignore", "disregard")
_MARKS: Final = " .-_*"

PHRASES: Final[Mapping[str, Phrase]] = {
    "ignore-instructions": Phrase(
        (
            *("ignor", "disregard", "forget", "bypass", "overrid", "stop following"),
            *("not follow", "n't follow", "vergiss", "missachte", "olvid"),
            *("haz caso omiso", "oublie", "ne tiens pas compte", "ne tenez pas compte"),
            *("忽略", "忽视", "忽視", "无视", "無視", "忘记", "忘記", "忘掉", "不要理会"),
        ),
        r"(?:ignor(?:e|ing)|disregard(?:ing)?|forget|bypass|overrid(?:e|ing)|stop following"
        r"|n.{1,2}t follow)"
        rf"{_SOME} (?:(?:previous|prior|above|earlier|preceding|foregoing|initial|original|system"
        r"|your)"
        rf"{_SOME} (?:instructions?|prompts?|rules|guidelines|directives?|directions|programming"
        r"|training)\b"
        r"|all (?:of )?(?:the |these |those )?(?:instructions|prompts|directives)\b"
        r"|instructions (?:above|before|given to you|you (?:were|have been|got))\b"
        r"|everything (?:you (?:were|have been) told|said (?:above|before)|above and|before this))"
        r"|(?:ignorier\w{0,3}|vergiss|missachte\w?)"
        rf"{_SOME} (?:vorherig|bisherig|obig|vorangegangen|früher|all|dein)\w{{0,2}}"
        rf"{_SOME} (?:anweisung|instruktion|vorgabe|regel|befehl)\w{{0,2}}\b"
        r"|(?:ignor[ae]\w?|olvid[ae]\w?|haz caso omiso de)"
        rf"{_SOME} (?:instrucciones|indicaciones|órdenes|reglas)"
        rf"{_SOME} (?:anteriores|previas|iniciales|de arriba)\b"
        r"|(?:ignore[rz]?|oublie[rz]?|ne (?:tiens|tenez) pas compte)"
        rf"{_SOME} (?:instructions|consignes|directives|règles)"
        rf"{_SOME} (?:précédentes|antérieures|initiales|ci dessus)\b"
        r"|(?:忽[略视視]|[无無][视視]|忘[记記掉]|不要理会)[^。!?]{0,6}?"
        r"(?:之前|以上|先前|前面|上述|此前|所有|全部|系[统統]|你的)[^。!?]{0,8}?"
        r"(?:指令|指示|提示|[规規][则則])",
    ),
    "new-instructions": Phrase(
        (
            *("new system", "your new", "new instruction", "updated instruction"),
            *("from now on", "ab jetzt", "neue system", "neue anweisungen", "a partir de ahora"),
            *("nuevas instrucciones", "à partir de maintenant", "nouvelles instructions"),
            *("从现在", "從現在", "新的指令", "新的系"),
        ),
        r"new system (?:prompt|instructions?|message|directives?)\b"
        r"|(?:new|updated) instructions? (?:for (?:you|the (?:ai|assistant|model|agent))"
        r"|from (?:the )?(?:system|developers?|administrator|openai|anthropic))\b"
        r"|your new (?:task|goal|objective|instructions?|role|purpose) (?:is|are)\b"
        r"|from now on you (?:are|will|must|shall|have to)\b"
        r"|ab jetzt (?:bist|wirst|musst) du\b|neue (?:system(?: )?)?anweisungen"
        r" (?:für dich|vom system)"
        r"|a partir de ahora (?:eres|debes|vas a)\b"
        r"|nuevas instrucciones (?:del sistema|para ti)\b"
        r"|à partir de maintenant (?:tu|vous) (?:es|êtes|dois|devez|vas|allez)\b"
        r"|nouvelles instructions (?:système|du système|pour toi)\b"
        r"|[从從][现現]在[开開]始.?你|新的(?:系[统統])?(?:指令|提示[词詞]):",
    ),
    "role-marker": Phrase(
        (
            *("<|", "[inst]", "[/inst]", "<<sys>>", "<</sys>>", "<system", "</system"),
            *("</assistant", "##"),
        ),
        r"<\|(?:im_(?:start|end|sep)|system|user|assistant|end|endof(?:text|prompt)|eo[tm]_id"
        r"|(?:start|end)_header_id|begin_of_text)\|>"
        r"|\[/?inst\]|<</?sys>>|</?system(?:[_\x20-](?:prompt|message|instructions?))?>"
        r"|</assistant>"
        r"|(?<!\S)#{2,6}\x20?(?:system|assistant|human|instructions?)\x20?:",
    ),
    "reveal-prompt": Phrase(
        (
            *("reveal", "show", "print", "output", "repeat", "display", "leak", "disclose"),
            *("reproduce", "dump", "recite", "tell me", "give me", "write out", "what is"),
            *("what are", "what was", "what were", "zeig", "verrate", "nenne", "wiederhol", "gib"),
            *("muestra", "muéstra", "revela", "repite", "dime", "montre", "révèle", "affiche"),
            *("répète", "donne", "显示", "顯示", "透露", "泄露", "输出", "輸出", "重复", "重複"),
            *("告诉我", "告訴我", "说出", "說出", "打印"),
        ),
        r"(?:reveal|show|print|output|repeat|display|leak|disclose|reproduce|dump|recite|tell me"
        rf"|give me|write out|what (?:is|are|was|were)){_SOME} (?:your"
        r" (?:(?:system|initial|original|hidden|full|exact|secret|own|internal) ){0,3}"
        r"(?:prompt|instructions|system message)\b"
        r"|(?:the|entire|full|hidden) (?:hidden |secret |developer )?system (?:prompt|message)"
        r"(?: (?:verbatim|above|word|in full|you)|\W{0,5}$))"
        r"|repeat (?:everything|all|the (?:words|text))(?: of)?(?: the)?(?: text)? above\b"
        rf"|(?:zeige?|verrate|nenne|wiederhole?|gib)\b{_SOME} dein\w{{0,2}}"
        rf"{_SOME} (?:system(?: )?prompt|system(?: )?anweisung|anweisung)"
        rf"|(?:muestra|revela|repite|dime|muéstrame)\b{_SOME} (?:tu|tus|el)"
        rf"{_SOME} (?:prompt (?:del|de) sistema|instrucciones (?:del sistema|iniciales|ocultas))"
        rf"|(?:montre|révèle|affiche|répète|donne)\b{_SOME} (?:ton|tes|votre|vos|le)"
        rf"{_SOME} (?:prompt système|instructions (?:système|initiales|cachées))"
        r"|(?:[显顯]示|透露|泄露|[输輸]出|重[复複]|告[诉訴]我|[说說]出|打印)[^。!?]{0,8}?"
        r"(?:系[统統]提示|你的提示[词詞]|系[统統]指令|初始指令|你的指令)",
        needs=("prompt", "instruc", "anweisung", "system message", "above", "提示", "指令"),
    ),
    "role-change": Phrase(
        (
            *("you are now", "you're now", "act as", "pretend", "role-play as"),
            *("roleplay as", "role play as", "behave as", "behave like", "you are no longer"),
            *("du bist", "actúa como", "ahora eres", "agis comme", "你现在是", "你現在是", "扮演"),
        ),
        r"(?:you (?:are|re) now|act as|pretend (?:to be|you are|that you are)|role(?: )?play as"
        rf"|behave (?:as|like)){_SOME} (?:dan|jailbroken|unrestricted|unfiltered|uncensored"
        r"|an? ai (?:without|with no|that has no)|do anything now)\b"
        r"|you are no longer (?:bound|restricted|limited|an ai|an assistant|subject to)\b"
        rf"|(?:du bist (?:jetzt|nun)|actúa como|ahora eres|agis comme){_SOME}"
        r" (?:dan|uneingeschränkte?|sin restricciones|sans restrictions?|ohne einschränkungen)\b"
        r"|你[现現]在是[^。!?]{0,8}?(?:dan|[没沒]有限制|不受限制)|扮演[^。!?]{0,4}?dan",
    ),
    "jailbreak": Phrase(
        (
            *("do anything now", "dan mode", "jailbreak mode", "jailbr", "god mode"),
            *("you have", "you are", "with", "has no"),
        ),
        r"do anything now\b|\bdan mode\b|jailbreak mode\b"
        r"|jailbr(?:oken|eak) (?:ai|assistant|model|chatgpt|gpt|llm|chatbot|prompt)\b"
        r"|god mode (?:enabled|activated|on)\b"
        r"|(?:(?:you (?:have|are)|with|has) (?:no|not bound by|free of)|without any) "
        r"(?:ethical|safety|moral|content) (?:guidelines|filters|restrictions|limits)\b",
        needs=(
            *("anything now", "dan mode", "jailbr", "god mode", "ethical", "safety", "moral"),
            *("content guid", "content filter", "content restr", "content lim"),
        ),
    ),
    "hide-from-user": Phrase(
        (
            *("do not", "don't", "never", "must not", "without", "hide", "conceal"),
            *("keep", "the user", "sag", "erzähl", "verrat", "teile", "no ", "ne ", "n'"),
            *("不要", "别", "別", "不得", "切勿"),
        ),
        r"(?:do not|don.?t|never|must not) (?:tell|inform|let) (?:the )?(?:user|human)"
        r" (?:about|that|of|what|know|anything)\b"
        r"|(?:do not|don.?t|never) (?:mention|reveal|disclose|show)"
        r" (?:this|that|it|these|any of this|anything)"
        rf"{_SOME} to (?:the )?(?:user|human)\b"
        r"|without (?:telling|informing|notifying|alerting) the (?:user|human)\b"
        rf"|(?:hide|conceal|keep) (?:this|it|these|that|all of this){_SOME}"
        r" from the (?:user|human)\b"
        r"|the user (?:must|should) not (?:know|notice|see this|be told|find out)\b"
        r"|(?:sage?|erzähle?|verrate?|teile?) (?:es |das |dies )?dem (?:be)?nutzer"
        rf"{_SOME} nichts?\b"
        rf"|\bno (?:le |se lo )?(?:digas|informes|menciones|cuentes){_SOME} al usuario\b"
        r"|\bn(?:e |\W)(?:dis|dites|informe[zr]?|mentionne[zr]?|parle[zr]?)"
        rf"{_SOME} utilisateur\b"
        r"|(?:不要|[别別]|不得|切勿)(?:告[诉訴知]|通知|[让讓])[^。!?]{0,4}?(?:用[户戶]|使用者)",
        needs=("user", "human", "nutzer", "usuario", "utilisateur", "用户", "使用者", "用戶"),
    ),
    "exfiltration": Phrase(
        _SENDING,
        rf"\b(?:{'|'.join(_SENDING)})\b(?:(?>.{{0,60}}?{_SECRETS})"
        r".{0,60}?(?:https?://|\bto (?:this|the|my) (?:url|endpoint|webhook)\b)"
        rf"|(?>.{{0,40}}?https?://).{{0,120}}?{_SECRETS})",
        needs=("http://", "https://", "to this", "endpoint", "webhook"),
    ),
    "tool-poisoning": Phrase(
        ("<important>", "</important>", "before", "pass", "otherwise"),
        r"</?important>"
        r"|before (?:using|calling|invoking|running|executing) (?:this|any|the|every)"
        r" (?:other )?(?:[^\W_]{1,30} )?tools?\b.{0,60}?\b"
        r"(?:you must|read|send|access|open|pass|always|first call)\b"
        r"|pass (?:its|their|the) contents? (?:as|in|to) .{0,40}?"
        r"\b(?:parameter|argument|sidenote)\b"
        r"|otherwise (?:the|this) tool (?:will|does|won.?t) not work\b",
        needs=("important>", "tool", "content"),
    ),
    "image-exfiltration": Phrase(
        ("![",),
        # An image whose address has a place to fill in after the question mark.
        r"!\[[^\]]{0,200}\]\(\x20?<?https?://[^)\s?]{0,300}\?[^)\s{}\[<$]{0,200}"
        r"(?:[{\[<]|\$[{a-z])",
    ),
    "false-end": Phrase(
        ("end of", "end system", "end user"),
        r"(?:(?<=[-=#*<\[])|(?<=[-=#*<\[]\x20))end (?:of )?(?:the )?"
        r"(?:system (?:prompt|message|instructions)|user (?:input|query|message|prompt))\b",
    ),
    "spelled-out": Phrase(
        tuple(mark.join(word) for word in _SPELLED for mark in _MARKS),
        "|".join(r"[\x20._*-]".join(word) for word in _SPELLED),
    ),
    HIDDEN_TEXT: Phrase(
        (),
        # Tag characters that are no flag's, and more variation selectors than a character has.
        "(?<![\U0001f3f4\U000e0020-\U000e007e])[\U000e0020-\U000e007e]{3}"
        "|\U0001f3f4[\U000e0020-\U000e007e]{7}|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{4}",
    ),
}
