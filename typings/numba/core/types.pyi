from collections.abc import Set

class Type: ...

int64: Type
signed_domain: Set[Type]

def unliteral(lit_type: Type) -> Type: ...
