// JobSyntax
