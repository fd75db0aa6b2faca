# The documentation site: `cmake --build … --target docs`. Sphinx reads the pages of the whole repository, so
# that links between docs/ and the READMEs of the components work on the site as they do in a source browser.
project = "hvd"
author = "the hvd authors"
copyright = author

extensions = ["myst_parser"]
myst_heading_anchors = 4

root_doc = "docs/index"
include_patterns = ["docs/**", "*.md", "*/README.md", "launcher/spark/README.md"]
exclude_patterns = ["docs/doxygen", "docs/site"]
toc_object_entries = False

html_theme = "furo"
html_title = "hvd"
html_extra_path = ["site"]
html_copy_source = False
html_show_sphinx = False


def setup(app):
    # A folder of the source tree is not a page of the site, so a link to it becomes plain text.
    app.connect("missing-reference", lambda app, env, node, text: text if node["reftarget"].endswith("/") else None)
