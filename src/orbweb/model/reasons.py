"""The closed list of reasons: why a request was not taken, waits, or how it ended."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]


class Reason(StrEnum):
    """One word, counted and shown wherever a request is dropped, delayed or ended."""

    # not taken
    DUPLICATE_REQUEST = "duplicate_request"
    DUPLICATE_REDIRECT = "duplicate_redirect"
    OFFSITE = "offsite"
    EXCLUDED = "excluded"
    ROBOTS_DISALLOWED = "robots_disallowed"
    ROBOTS_UNREACHABLE = "robots_unreachable"
    SCHEME = "scheme"
    URL_LENGTH = "url_length"
    DEPTH_LIMIT = "depth_limit"
    NOT_SERIALIZABLE = "not_serializable"
    BAD_URL = "bad_url"
    # waiting
    QUEUED = "queued"
    RATE_WAIT = "rate_wait"
    RETRY_WAIT = "retry_wait"
    NO_PROXY = "no_proxy"
    LEASED = "leased"
    # ended
    DONE = "done"
    REDIRECTED = "redirected"
    START_ENTRIES = "start_entries"
    STATUS_REJECTED = "status_rejected"
    CONTENT_TYPE = "content_type"
    TOO_LARGE = "too_large"
    ANTIBOT = "antibot"
    TIMEOUT = "timeout"
    DNS = "dns"
    TLS = "tls"
    CONNECTION = "connection"
    HTTP_ERROR = "http_error"
    VALIDATION = "validation"
    NOT_RETRY = "not_retry"
    CALLBACK_ERROR = "callback_error"
    UNKNOWN_CALLBACK = "unknown_callback"
    MIDDLEWARE_ERROR = "middleware_error"
    ITEM_REJECTED = "item_rejected"
    UNDECODABLE = "undecodable"
    POISON = "poison"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    REDIRECT_LOOP = "redirect_loop"
    PROXY = "proxy"
    TASK_STARTED = "task_started"
    TASK_DONE = "task_done"
    TASK_FAILED = "task_failed"
    TASK_TOLD = "task_told"

    def text(self, lang: Language = "en") -> str:
        """What happened, in one phrase."""
        entry = _TABLE[self]
        return entry.text_zh if lang == "zh" else entry.text_en

    def advice(self, lang: Language = "en") -> str:
        """What to do about it, in one sentence."""
        entry = _TABLE[self]
        return entry.advice_zh if lang == "zh" else entry.advice_en

    @property
    def phase(self) -> str:
        """`not taken`, `waiting` or `ended`."""
        return _TABLE[self].phase

    @property
    def retryable(self) -> bool:
        """Whether the same request may go better later without anybody changing anything."""
        return _TABLE[self].retryable


class _Entry(NamedTuple):
    phase: Literal["not taken", "waiting", "ended"]
    retryable: bool
    text_en: str
    text_zh: str
    advice_en: str
    advice_zh: str


_TABLE: dict[Reason, _Entry] = {
    Reason.DUPLICATE_REQUEST: _Entry(
        "not taken",
        False,
        "the same request was taken before",
        "相同的请求已经入队过",
        "To crawl it again pass filter_repeat=False, or start a fresh run.",
        "如需重新抓取，请设置 filter_repeat=False，或开始一次新的运行。",
    ),
    Reason.DUPLICATE_REDIRECT: _Entry(
        "ended",
        False,
        "it redirects to a page that was taken before",
        "重定向到的页面已经抓过",
        "Nothing to do; pass filter_repeat=False to follow such redirects all the same.",
        "无需处理；如仍要跟随这类重定向，请设置 filter_repeat=False。",
    ),
    Reason.OFFSITE: _Entry(
        "not taken",
        False,
        "its host is not among ALLOWED_DOMAINS",
        "域名不在 ALLOWED_DOMAINS 之内",
        "Add the domain to ALLOWED_DOMAINS if it belongs to the crawl.",
        "如果该域名属于抓取范围，请把它加入 ALLOWED_DOMAINS。",
    ),
    Reason.EXCLUDED: _Entry(
        "not taken",
        False,
        "EXCLUDE_URLS or INCLUDE_URLS leave its URL out",
        "URL 被 EXCLUDE_URLS 或 INCLUDE_URLS 排除",
        "Change these rules if it belongs to the crawl: orbweb config list shows live ones.",
        "如果该网址属于抓取范围，请修改这两项规则；orbweb config list 可查看实时规则。",
    ),
    Reason.ROBOTS_DISALLOWED: _Entry(
        "not taken",
        False,
        "robots.txt of the site disallows it",
        "站点的 robots.txt 不允许抓取",
        "Leave it, or ask the site; ROBOTS_OBEY=False is for sites that are yours.",
        "请放弃抓取或征得站点同意；ROBOTS_OBEY=False 只用于自己的站点。",
    ),
    Reason.ROBOTS_UNREACHABLE: _Entry(
        "not taken",
        True,
        "robots.txt of the site could not be read",
        "无法读取站点的 robots.txt",
        "Check that the site is up, and host and port; no page is fetched before /robots.txt.",
        "请检查站点是否在线、主机与端口是否正确；读到 /robots.txt 之前不会抓取任何页面。",
    ),
    Reason.SCHEME: _Entry(
        "not taken",
        False,
        "its scheme is neither http nor https",
        "协议既不是 http 也不是 https",
        "Nothing to do: mailto:, javascript: and the like are not pages.",
        "无需处理：mailto:、javascript: 等链接不是网页。",
    ),
    Reason.URL_LENGTH: _Entry(
        "not taken",
        False,
        "its URL is longer than URL_LENGTH_LIMIT",
        "网址超过 URL_LENGTH_LIMIT 的长度",
        "Look for a link that grows on every page, or raise URL_LENGTH_LIMIT.",
        "请检查是否有逐页变长的链接，或调大 URL_LENGTH_LIMIT。",
    ),
    Reason.DEPTH_LIMIT: _Entry(
        "not taken",
        False,
        "it is deeper than DEPTH_LIMIT",
        "深度超过 DEPTH_LIMIT",
        "Raise DEPTH_LIMIT (0 = no limit) if pages this deep are wanted.",
        "如需抓取更深的页面，请调大 DEPTH_LIMIT（0 表示不限）。",
    ),
    Reason.NOT_SERIALIZABLE: _Entry(
        "not taken",
        False,
        "it carries a value that cannot travel through the store",
        "请求携带了无法存入队列的值",
        "Put plain values into the field that the error names.",
        "请在错误所指的字段中只放普通的值。",
    ),
    Reason.BAD_URL: _Entry(
        "not taken",
        False,
        "its URL is malformed",
        "网址格式错误",
        "Correct the link, or the code that builds it.",
        "请修正链接，或修正生成该链接的代码。",
    ),
    Reason.QUEUED: _Entry(
        "waiting",
        True,
        "it waits for its turn",
        "正在排队",
        "Nothing to do; a smaller priority number goes first.",
        "无需处理；priority 数值越小越先抓取。",
    ),
    Reason.RATE_WAIT: _Entry(
        "waiting",
        True,
        "its host is at its rate or concurrency limit",
        "所属站点已达到速率或并发上限",
        "Nothing to do; the limits are DOWNLOAD_DELAY and CONCURRENT_REQUESTS_PER_DOMAIN.",
        "无需处理；上限由 DOWNLOAD_DELAY 与 CONCURRENT_REQUESTS_PER_DOMAIN 决定。",
    ),
    Reason.RETRY_WAIT: _Entry(
        "waiting",
        True,
        "an attempt failed, it waits for the next one",
        "上一次尝试失败，正在等待重试",
        "Nothing to do; the wait is set by SPIDER_RETRY_INTERVAL and RETRY_BACKOFF.",
        "无需处理；等待时间由 SPIDER_RETRY_INTERVAL 与 RETRY_BACKOFF 决定。",
    ),
    Reason.NO_PROXY: _Entry(
        "waiting",
        True,
        "no proxy of the pool is free for its host",
        "代理池中没有可用于该站点的代理",
        "Add proxies to PROXY_LIST or PROXY_FILE, or wait until their rest (PROXY_COOLDOWN) ends.",
        "请向 PROXY_LIST 或 PROXY_FILE 添加代理，或等待冷却时间（PROXY_COOLDOWN）结束。",
    ),
    Reason.LEASED: _Entry(
        "waiting",
        True,
        "a node is working on it",
        "某个节点正在处理",
        "Nothing to do; if that node dies the request returns when its lease expires.",
        "无需处理；如果该节点失联，租约到期后请求会自动归还。",
    ),
    Reason.DONE: _Entry(
        "ended",
        False,
        "the page was crawled and its items are stored",
        "页面已抓取，数据已入库",
        "Nothing to do.",
        "无需处理。",
    ),
    Reason.REDIRECTED: _Entry(
        "ended",
        False,
        "it redirects to another host, where the page is a request of its own",
        "重定向到其他站点，目标页面已作为新的请求处理",
        "Nothing to do; look for the target to see what became of the page.",
        "无需处理；页面的结果请查看重定向目标。",
    ),
    Reason.START_ENTRIES: _Entry(
        "ended",
        False,
        "it held start entries, which became requests of their own",
        "它保存起始条目，这些条目已各自成为请求",
        "Nothing to do; entries of which no request could be made are in the list KEY:bad.",
        "无需处理；无法生成请求的条目保存在列表 KEY:bad 中。",
    ),
    Reason.STATUS_REJECTED: _Entry(
        "ended",
        False,
        "the site answered with a status that is not accepted",
        "站点返回的状态码不被接受",
        "Add the status to ACCEPT_STATUS_CODES if the callback can use such a page.",
        "如果回调函数能处理这种页面，请把状态码加入 ACCEPT_STATUS_CODES。",
    ),
    Reason.CONTENT_TYPE: _Entry(
        "ended",
        False,
        "its content type is not among ALLOWED_CONTENT_TYPES",
        "内容类型不在 ALLOWED_CONTENT_TYPES 之内",
        "Add the type to ALLOWED_CONTENT_TYPES if it is wanted.",
        "如果需要这种内容，请把类型加入 ALLOWED_CONTENT_TYPES。",
    ),
    Reason.TOO_LARGE: _Entry(
        "ended",
        False,
        "its body is larger than MAX_RESPONSE_SIZE",
        "响应体超过 MAX_RESPONSE_SIZE",
        "Raise MAX_RESPONSE_SIZE (bytes after decompression) if such pages are wanted.",
        "如果需要这种页面，请调大 MAX_RESPONSE_SIZE（解压后的字节数）。",
    ),
    Reason.ANTIBOT: _Entry(
        "ended",
        True,
        "the site answered with a challenge page",
        "站点返回了反爬验证页面",
        "Slow down on this host, or ask the site for access.",
        "请降低该站点的抓取速度，或向站点申请访问权限。",
    ),
    Reason.TIMEOUT: _Entry(
        "ended",
        True,
        "the site did not answer in time",
        "站点没有在规定时间内响应",
        "Retry later, slow down on this host, or raise REQUEST_TIMEOUT.",
        "请稍后重试、降低该站点的速度，或调大 REQUEST_TIMEOUT。",
    ),
    Reason.DNS: _Entry(
        "ended",
        True,
        "the host name could not be resolved",
        "无法解析域名",
        "Check the spelling of the host and the name server of this machine.",
        "请检查域名拼写以及本机的 DNS 服务器。",
    ),
    Reason.TLS: _Entry(
        "ended",
        True,
        "no trusted TLS connection could be made",
        "无法建立可信的 TLS 连接",
        "Check the site's certificate; verify=False skips the check for one request.",
        "请检查站点证书；verify=False 可对单个请求跳过校验。",
    ),
    Reason.CONNECTION: _Entry(
        "ended",
        True,
        "the connection was refused or broke off",
        "连接被拒绝或中断",
        "Check that the site is up and reachable from this machine, then retry.",
        "请检查站点是否在线、本机能否访问，然后重试。",
    ),
    Reason.HTTP_ERROR: _Entry(
        "ended",
        True,
        "the site's answer breaks HTTP",
        "站点的响应不符合 HTTP 协议",
        "Retry later; if it stays so, open the URL with curl -v and tell the site.",
        "请稍后重试；若仍如此，用 curl -v 查看并告知站点。",
    ),
    Reason.VALIDATION: _Entry(
        "ended",
        True,
        "validate() did not accept the page",
        "validate() 没有通过",
        "Look at the page with orbweb failed show, and at validate().",
        "请用 orbweb failed show 查看页面，并检查 validate()。",
    ),
    Reason.NOT_RETRY: _Entry(
        "ended",
        False,
        "the spider gave it up (NotRetryError)",
        "爬虫主动放弃（NotRetryError）",
        "Nothing to do; the error text says why the spider gave up.",
        "无需处理；错误信息说明了放弃的原因。",
    ),
    Reason.CALLBACK_ERROR: _Entry(
        "ended",
        True,
        "the callback raised an error",
        "回调函数抛出了异常",
        "Correct the callback, then orbweb failed retry.",
        "请修正回调函数，然后执行 orbweb failed retry。",
    ),
    Reason.UNKNOWN_CALLBACK: _Entry(
        "ended",
        False,
        "the spider has no method of that name",
        "爬虫没有该名称的方法",
        "Name a method of the spider as callback, then orbweb failed retry.",
        "请把 callback 写成爬虫的方法名，然后执行 orbweb failed retry。",
    ),
    Reason.MIDDLEWARE_ERROR: _Entry(
        "ended",
        True,
        "a middleware raised an error",
        "中间件抛出了异常",
        "Correct the middleware that the error names, then orbweb failed retry.",
        "请修正错误所指的中间件，然后执行 orbweb failed retry。",
    ),
    Reason.ITEM_REJECTED: _Entry(
        "ended",
        False,
        "an item of the page could not be stored",
        "页面产出的数据无法入库",
        "Correct the field that the error names, then orbweb failed retry.",
        "请修正错误所指的字段，然后执行 orbweb failed retry。",
    ),
    Reason.UNDECODABLE: _Entry(
        "ended",
        False,
        "the stored request cannot be read",
        "无法读取存储的请求",
        "Use the version of Orbweb that wrote it, or drop it.",
        "请使用写入它的 Orbweb 版本，或将其删除。",
    ),
    Reason.POISON: _Entry(
        "ended",
        False,
        "its node died every time it was handed out",
        "每次派发后节点都会崩溃",
        "Run the page alone under a debugger; MAX_DELIVERIES sets how often it is tried.",
        "请单独调试该页面；尝试次数由 MAX_DELIVERIES 决定。",
    ),
    Reason.STOPPED: _Entry(
        "ended",
        True,
        "the crawl was stopped before it was finished",
        "抓取在完成之前被停止",
        "Start the spider again: it goes on where it stopped.",
        "再次启动爬虫即可从停止处继续。",
    ),
    Reason.CANCELLED: _Entry(
        "ended",
        False,
        "an operator dropped it",
        "被操作人员取消",
        "Nothing to do; orbweb failed retry brings back what was dropped by mistake.",
        "无需处理；误删的请求可用 orbweb failed retry 找回。",
    ),
    Reason.REDIRECT_LOOP: _Entry(
        "ended",
        False,
        "its redirects run in a circle or are too many",
        "重定向形成循环或次数过多",
        "Send the cookies that the site expects, or raise MAX_REDIRECTS.",
        "请携带站点需要的 Cookie，或调大 MAX_REDIRECTS。",
    ),
    Reason.PROXY: _Entry(
        "ended",
        True,
        "the proxy failed or refused",
        "代理失败或拒绝连接",
        "Check the proxy's address and password, then retry.",
        "请检查代理的地址与密码，然后重试。",
    ),
    Reason.TASK_STARTED: _Entry(
        "ended",
        False,
        "task_requests has made the requests of a task",
        "task_requests 已生成任务的请求",
        "Nothing to do.",
        "无需处理。",
    ),
    Reason.TASK_DONE: _Entry(
        "ended",
        False,
        "every request of the task has ended well",
        "任务的全部请求均已成功结束",
        "Nothing to do.",
        "无需处理。",
    ),
    Reason.TASK_FAILED: _Entry(
        "ended",
        False,
        "a request of the task was given up",
        "任务中有请求被放弃",
        "Look at its request with orbweb failed list, then orbweb failed retry.",
        "请用 orbweb failed list 查看相应请求，然后执行 orbweb failed retry。",
    ),
    Reason.TASK_TOLD: _Entry(
        "ended",
        False,
        "the spider was told how a task has ended",
        "已通知爬虫任务的结果",
        "Nothing to do.",
        "无需处理。",
    ),
}
