"""What each rule says to people, in two languages: what is wrong, what to do, how to undo it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]


class Text(NamedTuple):
    """What one rule says. `{subject}`, `{value}`, `{limit}`, `{detail}`, `{job}` are filled in.

    `{count}` is the value where it is a number of something and the threshold is a time.
    """

    wrong_en: str
    wrong_zh: str
    act: str
    """The smallest safe command."""
    undo: str = ""
    """What takes it back; empty = it only looks."""
    note_en: str = ""
    """What to know before the command."""
    note_zh: str = ""


TEXTS: Mapping[str, Text] = MappingProxyType({
    "node_silent": Text(
        "node {subject} ({detail}) has been silent for {value}; its requests go to other nodes",
        "节点 {subject}（{detail}）已 {value} 无心跳，它持有的请求会由其他节点接手",
        "orbweb nodes {job}",
        note_en="start another node of the spider; nothing of its work is lost",
        note_zh="请再启动一个节点；已有工作不会丢失",
    ),
    "zombie": Text(
        "node {subject} speaks but does no work: {detail}",
        "节点 {subject} 有心跳但不干活：{detail}",
        "orbweb nodes {job}",
        note_en="kill -USR2 PID shows where it stands; kill PID lets other nodes take over",
        note_zh="kill -USR2 PID 可查看卡在何处；kill PID 后由其他节点接手",
    ),
    "backlog": Text(
        "{value} requests wait (limit {limit}), and more than before ({detail})",
        "积压 {value} 个请求（阈值 {limit}），且仍在增长（{detail}）",
        "orbweb hosts --job {job} --sort backlog",
        note_en="start more nodes if no host is at its limit",
        note_zh="若站点未到限速上限，可增加节点",
    ),
    "no_progress": Text(
        "no good page for {value} although requests wait; limited by: {detail}",
        "队列非空，但已 {value} 没有成功页面；受限于：{detail}",
        "orbweb hosts --job {job}",
        note_en="the last column says why each host waits",
        note_zh="最后一列说明每个站点为何等待",
    ),
    "nothing_done": Text(
        "the run ended with nothing done, or far less than usual ({count} pages) {detail}",
        "运行结束但无产出或远少于往常（{count} 页）{detail}",
        "orbweb status {job}",
        note_en="it lists what was skipped, by reason; --fresh crawls all again",
        note_zh="其中按原因列出被跳过的请求；--fresh 可全部重抓",
    ),
    "run_lost": Text(
        "{detail} is not in the store any more, though nodes worked on it; they have ended",
        "{detail} 已不在存储中，正在工作的节点已退出",
        "orbweb doctor",
        note_en="the server lost its data: see to its persistence, then start again",
        note_zh="服务器丢失数据或被清空：请先检查其持久化配置，再重新启动",
    ),
    "schedule_missed": Text(
        "a batch has been due for {value}: {detail}",
        "批次已到点 {value} 仍未开始：{detail}",
        "orbweb jobs",
        note_en="start the spider with --monitor where no master is at work",
        note_zh="若没有主控，请以 --monitor 启动爬虫",
    ),
    "failure_rate": Text(
        "{value} of the attempts fail (limit {limit}): {detail}",
        "失败率 {value}（阈值 {limit}）：{detail}",
        "orbweb pause {job} --job",
        "orbweb resume {job} --job",
        "orbweb failed list {job} says why",
        "orbweb failed list {job} 查看原因",
    ),
    "failed_requests": Text(
        "{value} requests were given up (limit {limit})",
        "已放弃 {value} 个请求（阈值 {limit}）",
        "orbweb failed list {job}",
    ),
    "blocked": Text(
        "{subject} refuses {value} of the requests with 403, 429 or a challenge: {detail}",
        "{subject} 以 403/429/验证页拒绝了 {value} 的请求：{detail}",
        "orbweb limit {subject} 1/10s --for 30m",
        "orbweb limit {subject} off",
        "slow down first; do not change proxies or User-Agent to get around it",
        "请先降速；不要用换代理或 User-Agent 的方式绕过",
    ),
    "dns_failure": Text(
        "{value} of the attempts find no address for the host: {detail}",
        "{value} 的请求域名解析失败：{detail}",
        "orbweb pause {job} --job",
        "orbweb resume {job} --job",
        "check the name server of the machine, then the spelling of the host",
        "请先检查本机 DNS，再检查域名拼写",
    ),
    "duplicates": Text(
        "{value} of the items were there already (limit {limit}, {detail} items)",
        "数据重复率 {value}（阈值 {limit}，{detail} 条）",
        "orbweb items quality {job}",
        note_en="look at __unique_key__ and at what the URLs differ in",
        note_zh="请检查 __unique_key__ 以及网址差异",
    ),
    "field_missing": Text(
        "{detail}",
        "字段缺失异常：{detail}",
        "orbweb pause {job} --job",
        "orbweb resume {job} --job",
        "the page has changed, or the parser has",
        "页面或解析代码有变化",
    ),
    "dedup_fill": Text(
        "the filter of seen URLs is {value} full (limit {limit}); beyond 100% it drops new pages",
        "去重过滤器已用 {value}（阈值 {limit}），超过 100% 会误丢新页面",
        "orbweb dedup stats {job}",
        note_en="raise DEDUP_INITIAL_CAPACITY for the next run, or use exact, which has no end",
        note_zh="下次运行请调大 DEDUP_INITIAL_CAPACITY，或改用没有上限的 exact",
    ),
    "sink_down": Text(
        "{subject} has stored nothing for {value}: {detail}",
        "{subject} 已 {value} 无法入库：{detail}",
        "orbweb pause {job} --job",
        "orbweb resume {job} --job",
        "nothing is lost: pages wait unacknowledged until the items are stored",
        "不会丢数据：页面在数据入库前不会被确认",
    ),
    "disk_full": Text(
        "the disk of {subject} is {value} full (limit {limit}): {detail}",
        "{subject} 磁盘已用 {value}（阈值 {limit}）：{detail}",
        "orbweb pause {job} --job",
        "orbweb resume {job} --job",
        "then make room: old logs first",
        "然后清理空间，先清旧日志",
    ),
    "cpu": Text(
        "node {subject} ({detail}) uses {value} of its core (limit {limit})",
        "节点 {subject}（{detail}）CPU 占用 {value}（阈值 {limit}）",
        "orbweb nodes {job}",
        note_en="start another node on another core",
        note_zh="请在其他核上再启动一个节点",
    ),
    "store_memory": Text(
        "the store uses {value} of its memory limit ({detail}); at 100% it takes no new requests",
        "存储内存已用 {value}（上限 {detail}），用满后不再接受新请求",
        "orbweb doctor",
        note_en="raise maxmemory: CONFIG SET maxmemory takes effect at once",
        note_zh="请调大 maxmemory：CONFIG SET maxmemory 立即生效",
    ),
    "store_unreachable": Text(
        "the store has not answered for {value}: {detail}; nodes wait, nothing is lost",
        "存储已 {value} 无响应：{detail}；节点在等待，数据不会丢失",
        "orbweb doctor",
        note_en="bring the server back; nodes go on by themselves",
        note_zh="请恢复服务器；节点会自动继续",
    ),
    "consumer_stuck": Text(
        "consumer {subject} has stood still for {value}: {detail}",
        "消费者 {subject} 已停滞 {value}：{detail}",
        "orbweb doctor",
        note_en="start another orbweb consume of the group; no item is lost or stored twice",
        note_zh="请在同组再启动一个 orbweb consume；数据不丢不重",
    ),
    "config_drift": Text(
        "node {subject} has run with an old configuration for {value}: {detail}",
        "节点 {subject} 使用旧配置已 {value}：{detail}",
        "orbweb nodes {job}",
        note_en="restart the node if it stays behind",
        note_zh="若一直落后请重启该节点",
    ),
    "source_unreachable": Text(
        "the source of {subject} has not answered for {value}: {detail}",
        "{subject} 来源已 {value} 无法访问：{detail}",
        "orbweb nodes {job}",
        note_en="nodes keep the last good values; what they hold goes on",
        note_zh="节点保留最后一份可用数据，已有工作继续",
    ),
})  # fmt: skip
"""What the rules of `RULES` say."""
