"""The report: what a database says, as one page that needs no network, or as a picture.

`data` asks the database, `plane` and `charts` say what is drawn, `style` how it looks, `page` and `picture` write it.
"""
