"""plugins: what is installed of each kind, where it comes from, and what does not load."""

from ccr_cli import registry
from ccr_cli.data import mismatch

COLUMNS = ("kind", "name", "from", "state", "mend")
Row = tuple[str, str, str, str, str]


def listed() -> list[Row]:
    """Lists all plug-ins, and imports each: kind, name, where it comes from, its state, and what to do if that is bad.

    `from` is `ccr`, the file of a plug-in in ccr's folders that does not belong to ccr, or a distribution with its
    version. ccr's own file or noise style of a name wins over an installed plug-in, which is then not used.
    """
    rows: list[Row] = []
    for group in registry.GROUPS:
        _, broken = registry.loaded(group)
        for name in registry.file_names(group):
            plugin, error = registry.find(group, name), broken.get(name)
            own = bool(registry.own([plugin.path])) if plugin.path else False
            state = (f"broken, {error.reason}", plugin.remedy) if error else ("ok", "")
            rows.append((registry.KINDS[group], name, str(plugin.path) if own else "ccr", *state))
        if group == "noise":
            rows += [(registry.KINDS[group], name, "ccr", "ok", "") for name in mismatch.STYLES]
        taken = {*registry.file_names(group), *(mismatch.STYLES if group == "noise" else ())}
        for plugin in (each for each in registry.installed() if each.group == group):
            rows.append(_installed(plugin, taken, broken))
    strange = [plugin for plugin in registry.installed() if plugin.group not in registry.GROUPS]
    return rows + [_installed(plugin, set(), {}) for plugin in strange]


def _installed(plugin: registry.Plugin, taken: set[str], broken: dict[str, registry.BrokenError]) -> Row:
    """The row of a plug-in of a distribution."""
    state, remedy = "ok", ""
    if plugin.name in taken:
        state, remedy = f"not used: ccr has its own {plugin.name}", "another name of its entry point"
    elif reason := plugin.problem or (broken[plugin.name].reason if plugin.name in broken else ""):
        state, remedy = f"broken, {reason}", plugin.remedy
    return registry.KINDS.get(plugin.group, plugin.group), plugin.name, plugin.distribution, state, remedy
