// RUN: xdsl-opt %s -p pebble-fuse-codes,pebble-fuse-convolutions --split-input-file | filecheck %s

// A convolution on codes takes the activation, and the codes to which both it and the pooling behind it are rounded.
// CHECK-LABEL: @codes
func.func @codes(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x2x2xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: [[Q:%.*]] = pebble.convert %x : {{.*}} -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  // CHECK-NEXT: [[R:%.*]] = pebble.conv2d [[Q]], %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <{{.*}}> activation <relu> : {{.*}} -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.25 zero 3>>
  // CHECK-NEXT: [[P:%.*]] = pebble.pool2d "max" [[R]] {{.*}} -> tensor<?x2x2x2x!pebble.codes<u8 scale 0.25 zero 3>>
  // CHECK-NEXT: [[Y:%.*]] = pebble.convert [[P]]
  // CHECK-NEXT: func.return [[Y]]
  %q = pebble.activate <quantize(0.5, 128.0)> %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %h_q = pebble.convert %q : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %h = pebble.conv2d %h_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %a = pebble.activate <relu> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %r = pebble.activate <quantize(0.25, 3.0)> %a : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %p = pebble.pool2d "max" %r window <[2, 2] strides [2, 2] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4xf32>) -> tensor<?x2x2x2xf32>
  %y = pebble.activate <quantize(0.25, 3.0)> %p : (tensor<?x2x2x2xf32>) -> tensor<?x2x2x2xf32>
  func.return %y : tensor<?x2x2x2xf32>
}

// -----

// One whose codes are found at each call takes what is added to each channel.
// CHECK-LABEL: @found
func.func @found(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<0.0> : tensor<2xf32>
  %m = pebble.constant dense<0.5> : tensor<2xf32>
  %c = pebble.constant dense<[[[3.0]], [[4.0]]]> : tensor<2x1x1xf32>
  %h = pebble.conv2d %x, %w bias %b : tensor<2xf32> times %m : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> precision "u8" : (tensor<?x2x4x4xf32>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  // CHECK: [[B:%.*]] = pebble.constant dense<[3.000000e+00, 4.000000e+00]> : tensor<2xf32>
  // CHECK: [[Y:%.*]] = pebble.conv2d %x, %w bias [[B]] : tensor<2xf32> times %m : tensor<2xf32> window <{{.*}}> activation <relu> precision "u8" : (
  // CHECK-NEXT: func.return [[Y]]
  %s = pebble.add %h, %c : (tensor<?x2x4x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.activate <relu> %s : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// Values beyond the ends of a clip have the first code and the last one without it as well.
// CHECK-LABEL: @ends
func.func @ends(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: [[C:%.*]] = pebble.conv2d %h_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <{{[^>]*}}> : {{.*}} -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.02{{[0-9]*}} zero 0>>
  // CHECK-NEXT: [[Y:%.*]] = pebble.convert [[C]]
  // CHECK-NEXT: func.return [[Y]]
  %h_q = pebble.convert %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %h = pebble.conv2d %h_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %a = pebble.activate <clip(0.0, 6.0)> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.activate <quantize(0.023529411764705882, 0.0)> %a : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// What was rounded is rounded to other codes.
// CHECK-LABEL: @other_codes
func.func @other_codes(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: %q = pebble.activate <quantize(0.25, 128.0)> %x
  %q = pebble.activate <quantize(0.25, 128.0)> %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  // CHECK-NEXT: %h_q = pebble.convert %q
  // CHECK-NEXT: pebble.conv2d %h_q, {{.*}} -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.25 zero 3>>
  // CHECK-NEXT: pebble.convert
  %h_q = pebble.convert %q : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %h = pebble.conv2d %h_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %r = pebble.activate <quantize(0.25, 3.0)> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  // CHECK-NEXT: pebble.activate <quantize(0.5, 3.0)>
  %y = pebble.activate <quantize(0.5, 3.0)> %r : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// A clip that ends before the last code.
// CHECK-LABEL: @before_the_end
func.func @before_the_end(%x: tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32> {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %b = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: window <{{[^>]*}}> activation <clip(0.0, 6.0)> : {{.*}} -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.025{{[0-9]*}} zero 0>>
  %h_q = pebble.convert %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %h = pebble.conv2d %h_q, %w bias %b : tensor<2xf32> times %b : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %a = pebble.activate <clip(0.0, 6.0)> %h : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %y = pebble.activate <quantize(0.025, 0.0)> %a : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %y : tensor<?x2x4x4xf32>
}

// -----

// Two convolutions of one image that comes in read the same codes, of which a sum reads the floats.
// CHECK-LABEL: @readers
func.func @readers(%x: tensor<?x2x4x4xf32>) -> (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) {
  %w = pebble.constant dense<1.0> : tensor<2x2xf32>
  %m = pebble.constant dense<1.0> : tensor<2xf32>
  // CHECK: [[Q:%.*]] = pebble.convert %x
  // CHECK-NEXT: [[F:%.*]] = pebble.convert [[Q]]
  // CHECK-NEXT: pebble.conv2d [[Q]]
  // CHECK-NEXT: pebble.conv2d [[Q]]
  // CHECK-NEXT: pebble.add %{{.*}}, [[F]]
  %r = pebble.activate <quantize(0.5, 128.0)> %x : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  %p = pebble.convert %r : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %q = pebble.convert %r : (tensor<?x2x4x4xf32>) -> tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>
  %a = pebble.conv2d %p, %w times %m : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %b = pebble.conv2d %q, %w times %m : tensor<2xf32> window <[1, 1] strides [1, 1] dilations [1, 1] pads [0, 0, 0, 0]> : (tensor<?x2x4x4x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>) -> tensor<?x2x4x4xf32>
  %s = pebble.add %a, %r : (tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>) -> tensor<?x2x4x4xf32>
  func.return %s, %b : tensor<?x2x4x4xf32>, tensor<?x2x4x4xf32>
}
