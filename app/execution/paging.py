"""``ctx.elicit_page``: a question whose answer does not come from the client.

What the client says is consent. The answer itself is entered on a page of this server by the user
whom the page has identified, and is read from the store in each round; it is in no state, result
or log line (Elicitation, "URL Mode Elicitation for Sensitive Data").
"""

import contextlib
from typing import TYPE_CHECKING

from app.execution.pages import Page
from app.execution.questions import PAGE_NEEDS, page_question
from app.protocol.asking import BadAnswer
from app.registry.forms import Form, form_of, refuse_links
from app.state.interface import StoreFull, StoreUnavailable
from app.toolkit import ElicitResult, ToolError
from app.toolkit.asking import F

if TYPE_CHECKING:
    from app.execution.asking import Asking


async def elicit_page(asking: "Asking", key: str, message: str, model: type[F]) -> ElicitResult[F]:
    """Ask until the user has completed the page, or does not want to.

    Raises:
        ToolError: The client cannot send its user to a page, there is no page for this caller, or
            the store cannot be reached.
    """
    refuse_links(message, "the message")
    form = form_of(model, on_page=True)
    asking.require(PAGE_NEEDS)
    url = asking.desk.pages_url(asking.principal)
    try:
        with asking.effect():
            handle, data = await _open(asking, key, message, form)
    except StoreFull as error:
        raise ToolError(
            "There is no room for another page: too many are kept for you. Complete or decline "
            "one that you have, or try again when some have expired."
        ) from error
    except StoreUnavailable as error:
        raise ToolError("The page cannot be reached at the moment; try again later.") from error
    # Where the user has done it, it changes nothing that the client does not say so.
    is_done = data is not None and asking.answered(key) is None
    answer: ElicitResult[F] = await asking.ask(
        page_question(key, message, f"{url}/{handle}", data),
        otherwise={"action": "accept"} if is_done else None,
    )
    if answer.action != "accept":
        with contextlib.suppress(StoreUnavailable):  # then it ends when its time is over
            await asking.desk.pages.close(handle)
    return answer


async def _open(asking: "Asking", key: str, message: str, form: Form[F]) -> tuple[str, F | None]:
    """The handle of the question's page, and what was entered there, if anything.

    It is the same handle in all rounds of a call, until what was entered on its page is of no use.
    """
    pages, principal = asking.desk.pages, asking.principal
    handle, said = asking.page_handles.get(key), asking.answered(key)
    if handle is not None:
        if said in ("decline", "cancel"):
            return handle, None
        entered = await pages.entered(handle, principal)
        if entered is not None:
            try:
                return handle, form.read(entered)[0]
            except BadAnswer:
                handle = None  # the tool was changed, and its form with it
        elif asking.was_answered(key):
            handle = None  # it was entered, read, and has expired
    handle = handle or pages.new_handle()
    asking.page_handles[key] = handle
    page = Page(str(principal.issuer), str(principal.subject), asking.tool, message, form.schema)
    await pages.open(handle, page, form.model)
    return handle, None
