"""For the site: functions made from the class of a loss, which have no ``def`` to read, are looked at instead."""

import griffe


class Functions(griffe.Extension):
    """Run by mkdocstrings for every module it has read."""

    def on_module_members(self, *, mod: griffe.Module, agent: griffe.Visitor | griffe.Inspector, **_: object) -> None:
        made = [name for name, of in mod.attributes.items() if str(of.value).startswith("function_of(")]
        if made and isinstance(agent, griffe.Visitor):
            seen = griffe.inspect(mod.path)
            for name in made:
                mod.set_member(name, seen.members[name])
