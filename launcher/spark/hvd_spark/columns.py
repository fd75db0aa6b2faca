"""Checks that a DataFrame has the columns of an estimator or a model, with types that a tensor can
have, and converts them to types that Arrow has."""

import math


def numbers(values, name, least=1):
    """Returns the value. Raises unless it is a whole number of at least `least`."""
    if isinstance(values, bool) or not isinstance(values, int):
        raise TypeError("%s is %r: expected a whole number" % (name, values))
    if values < least:
        raise ValueError("%s is %d: expected %d or more" % (name, values, least))
    return values


def names(values, what):
    """Returns the list. Raises unless it holds names, and each of them once."""
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise TypeError("%s is %r: expected a list of column names" % (what, values))
    values = list(values)
    twice = next((name for name in values if values.count(name) > 1), None)
    if not values or twice is not None:
        raise ValueError(
            "%s is %s" % (what, "empty" if not values else "%r: %r twice" % (values, twice))
        )
    return values


def shapes(values, columns, kind="input"):
    """Returns one shape for each column, or, for inputs, one for all columns. A leading -1, which
    represents the rows, is removed."""
    what = kind + "_shapes"
    values = [list(shape) for shape in values]
    if len(values) != len(columns) and (kind == "label" or len(values) != 1):
        cols = "feature_cols" if kind == "input" else "label_cols"
        raise ValueError("%s has %d shapes for %d %s" % (what, len(values), len(columns), cols))
    values = [shape[1:] if shape[:1] == [-1] else shape for shape in values]
    for shape in values:
        for size in shape:
            numbers(size, "%s: %r: a dimension" % (what, shape))
    return values


def check_types(schema, wanted, what, only_numbers=False):
    """Raises ValueError for a column that is missing or has another type."""
    expected = "a number" if only_numbers else "a number, an array of numbers or a vector"
    for name in wanted:
        if name not in schema.names:
            raise ValueError(
                "%s: the DataFrame has no column %r; it has %s"
                % (what, name, ", ".join(map(repr, schema.names)))
            )
        kind = schema[name].dataType
        if not (is_number(kind) or not only_numbers and (is_vector(kind) or is_array(kind))):
            raise ValueError(
                "%s: column %r is %s: expected %s" % (what, name, kind.simpleString(), expected)
            )


def check_shapes(schema, feature_cols, input_shapes):
    """Returns how many numbers a row has, by column, for the columns whose type does not determine
    it. Raises ValueError when types and shapes do not fit."""
    single = [name for name in feature_cols if is_number(schema[name].dataType)]
    if len(input_shapes) != len(feature_cols):
        if input_shapes and single == feature_cols and math.prod(input_shapes[0]) != len(single):
            raise ValueError(
                "feature_cols are %d numbers a row, and input_shapes %r are %d"
                % (len(single), input_shapes, math.prod(input_shapes[0]))
            )
        return {}
    lengths = dict(zip(feature_cols, map(math.prod, input_shapes)))
    for name in single:
        if lengths[name] != 1:
            raise ValueError(
                "column %r has one number a row, and its shape in input_shapes %d"
                % (name, lengths[name])
            )
    nested = [name for name in feature_cols if is_nested(schema[name].dataType)]
    return {name: lengths[name] for name in feature_cols if name not in single + nested}


def is_number(kind):
    from pyspark.sql import types

    return isinstance(kind, (types.NumericType, types.BooleanType))


def is_array(kind):
    """Returns whether the type is an array of numbers, of arrays of numbers, and so on."""
    from pyspark.sql import types

    return isinstance(kind, types.ArrayType) and (
        is_number(kind.elementType) or is_array(kind.elementType)
    )


def is_nested(kind):
    return is_array(kind) and is_array(kind.elementType)


def is_vector(kind):
    """Returns whether the type is a vector of Spark ML."""
    return type(kind).__name__ == "VectorUDT"


def as_numbers(dataframe, name):
    """Returns the column. Vectors, which Arrow does not have, become arrays of float."""
    column = dataframe[quoted(name)]
    if not is_vector(dataframe.schema[name].dataType):
        return column
    from pyspark.ml.functions import vector_to_array

    return vector_to_array(column, "float32")


def quoted(name):
    """Returns the name in backticks, so that Spark does not interpret dots and spaces in it."""
    return "`%s`" % name.replace("`", "``")
